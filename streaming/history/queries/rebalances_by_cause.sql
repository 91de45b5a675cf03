-- Rebalances by hour and cause, the latest hour first, and how many of them a policy had held. A second cause during a
-- rebalance, and a further round of a cooperative one, start no other rebalance.
WITH turns AS (
  SELECT group_id, at, cause, event, held_ms,
         lag(event) OVER (PARTITION BY group_id ORDER BY at_ms, version) AS event_before
  FROM events
  WHERE event IN ('rebalance_started', 'rebalance_completed', 'group_emptied')
)
SELECT date_trunc('hour', at) AS hour,
       group_id,
       cause,
       count(*)               AS rebalances,
       count(held_ms)         AS held
FROM turns
WHERE event = 'rebalance_started' AND event_before IS DISTINCT FROM 'rebalance_started'
  AND cause <> 'cooperative_round'
GROUP BY ALL
ORDER BY hour DESC, rebalances DESC, group_id, cause
