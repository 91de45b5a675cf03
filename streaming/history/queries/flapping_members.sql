-- The clients that cause the most rebalances, and how often they were dropped or fenced.
SELECT group_id,
       client_id,
       client_host,
       count_if(event = 'rebalance_started') AS rebalances,
       count_if(event = 'member_expired')    AS dropped,
       count_if(event = 'member_fenced')     AS fenced
FROM events
WHERE event IN ('rebalance_started', 'member_expired', 'member_fenced') AND client_id <> ''
GROUP BY group_id, client_id, client_host
ORDER BY rebalances DESC, group_id, client_id, client_host
LIMIT 20
