-- The departures of members by day, and what they cost: rebalances, seats that passed on or were adopted, and the time
-- that partitions of these seats had no owner. Of the seats whose vacancy ended in a rebalance, the query
-- time_without_owner has the time.
WITH turns AS (
  SELECT *, lag(event) OVER (PARTITION BY group_id, coordinator ORDER BY arrival, at_ms, version) AS event_before
  FROM followed_events
  WHERE event IN ('rebalance_started', 'rebalance_completed', 'group_emptied')
), costs AS (
  SELECT group_id, coordinator, at, event, how, unowned_ms,
         aggregate(map_values(from_json(partitions, 'map<string, array<int>>')), 0, (sum, each) -> sum + size(each))
           AS places
  FROM followed_events
  WHERE event IN ('member_left', 'member_expired', 'seat_vacated', 'seat_taken')
  UNION ALL
  SELECT group_id, coordinator, at, event, CAST(NULL AS STRING), CAST(NULL AS BIGINT), CAST(NULL AS INT)
  FROM turns
  WHERE event = 'rebalance_started' AND event_before IS DISTINCT FROM 'rebalance_started'
    AND cause <> 'cooperative_round'
)
SELECT date_trunc('day', at)                                             AS day,
       group_id,
       coordinator,
       count_if(event IN ('member_left', 'member_expired'))              AS departures,
       count_if(event = 'rebalance_started')                             AS rebalances,
       count_if(event = 'seat_vacated')                                  AS seats_vacated,
       count_if(event = 'seat_taken' AND how <> 'adopted')               AS seats_passed_on,
       count_if(event = 'seat_taken' AND how = 'adopted')                AS seats_adopted,
       coalesce(max(unowned_ms), 0)                                      AS longest_without_owner_ms,
       round(coalesce(sum(unowned_ms * places), 0) / 1000, 3)            AS partition_seconds_without_owner
FROM costs
GROUP BY ALL
ORDER BY day DESC, departures DESC, group_id, coordinator
