-- The clients that cause the most rebalances, and how often they were dropped or fenced, left a seat that a policy kept,
-- or were in quarantine. The further rounds of a cooperative rebalance count against nobody.
SELECT group_id,
       coordinator,
       client_id,
       client_host,
       count_if(event = 'rebalance_started' AND cause <> 'cooperative_round') AS rebalances,
       count_if(event = 'member_expired')     AS dropped,
       count_if(event = 'member_fenced')      AS fenced,
       count_if(event = 'seat_vacated')       AS seats,
       count_if(event = 'member_quarantined') AS quarantines
FROM followed_events
WHERE event IN ('rebalance_started', 'member_expired', 'member_fenced', 'seat_vacated', 'member_quarantined')
  AND client_id <> ''
GROUP BY group_id, coordinator, client_id, client_host
ORDER BY rebalances DESC, seats DESC, group_id, coordinator, client_id, client_host
LIMIT 20
