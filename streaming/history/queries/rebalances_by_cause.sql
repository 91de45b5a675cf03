-- Rebalances by hour and cause, the latest hour first, and how many of them a policy had held. A second cause during a
-- rebalance, and a further round of a cooperative one, start no other rebalance. A group that moves goes on with its
-- rebalance at the other coordinator.
WITH turns AS (
  SELECT group_id, coordinator, at, cause, event, held_ms,
         lag(event) OVER (PARTITION BY group_id, coordinator ORDER BY arrival, at_ms, version) AS event_before
  FROM followed_events
  WHERE event IN ('rebalance_started', 'rebalance_completed', 'group_emptied')
)
SELECT date_trunc('hour', at) AS hour,
       group_id,
       coordinator,
       cause,
       count(*)               AS rebalances,
       count(held_ms)         AS held
FROM turns
WHERE event = 'rebalance_started' AND event_before IS DISTINCT FROM 'rebalance_started'
  AND cause <> 'cooperative_round'
GROUP BY ALL
ORDER BY hour DESC, rebalances DESC, group_id, coordinator, cause
