-- The time that each partition had no owner, between one owner and the next. An owner's time ends when it leaves or is
-- dropped, not when the next assignments come. A static member is the same owner in each of its processes. In a group of
-- the consumer protocol, an owner's time ends when it has given the partition up. A member that takes a seat is the next
-- owner of its partitions. A move of the group to another coordinator ends no owner's time.
WITH names AS (
  SELECT DISTINCT group_id, coordinator, explode(array(member_id, coalesce(replaced_by, replaces))) AS name,
         group_instance_id
  FROM followed_events
  WHERE event IN ('member_fenced', 'member_back')
), changes AS (
  SELECT group_id, coordinator, arrival, at_ms, version, place, handover.topic, handover.partition, handover.after
  FROM followed_events LATERAL VIEW posexplode(handovers) AS place, handover
  WHERE event = 'assignment_changed'
  UNION ALL
  SELECT group_id, coordinator, arrival, at_ms, version, place, topic, taken, member_id AS after
  FROM followed_events
       LATERAL VIEW explode(from_json(partitions, 'map<string, array<int>>')) AS topic, numbers
       LATERAL VIEW posexplode(numbers) AS place, taken
  WHERE event = 'seat_taken'
), owned AS (
  SELECT c.*, coalesce(group_instance_id, after) AS owner,
         lead(at_ms) OVER (PARTITION BY c.group_id, c.coordinator, topic, partition
                           ORDER BY arrival, at_ms, version, place) AS moved_on_ms
  FROM changes AS c LEFT JOIN names
    ON names.group_id = c.group_id AND names.coordinator = c.coordinator AND name = after
), ended AS (
  SELECT e.group_id, e.coordinator, coalesce(names.group_instance_id, member_id) AS owner, at_ms AS gone_ms
  FROM followed_events AS e LEFT JOIN names
    ON names.group_id = e.group_id AND names.coordinator = e.coordinator AND name = member_id
  WHERE event IN ('member_left', 'member_expired')
), spans AS (
  SELECT owned.group_id, owned.coordinator, topic, partition, at_ms AS from_ms,
         least(moved_on_ms, min(gone_ms)) AS to_ms
  FROM owned LEFT JOIN ended
    ON ended.group_id = owned.group_id AND ended.coordinator = owned.coordinator AND ended.owner = owned.owner
       AND gone_ms >= at_ms
  WHERE after IS NOT NULL
  GROUP BY owned.group_id, owned.coordinator, topic, partition, arrival, at_ms, version, place, moved_on_ms
), waits AS (
  SELECT *,
         lead(from_ms) OVER (PARTITION BY group_id, coordinator, topic, partition ORDER BY from_ms) - to_ms AS wait_ms
  FROM spans
)
SELECT group_id,
       coordinator,
       topic,
       partition,
       sum(wait_ms)          AS without_owner_ms,
       count_if(wait_ms > 0) AS times
FROM waits
WHERE wait_ms IS NOT NULL
GROUP BY group_id, coordinator, topic, partition
ORDER BY without_owner_ms DESC, group_id, coordinator, topic, partition
