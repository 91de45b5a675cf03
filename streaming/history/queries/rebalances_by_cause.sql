-- Rebalances an hour, by cause, the latest hour first.
SELECT date_trunc('hour', at) AS hour,
       group_id,
       cause,
       count(*)               AS rebalances
FROM events
WHERE event = 'rebalance_started'
GROUP BY ALL
ORDER BY hour DESC, rebalances DESC, group_id, cause
