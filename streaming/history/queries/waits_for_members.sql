-- The members of consumer groups that others waited for: the time from a plan until they gave up the partitions that it
-- moved, left or were dropped. Of a member that left or was dropped, only the partitions count that a plan had given to
-- another member before, as the group's records show. Partitions that no other member waited for were free at once. A
-- wait goes on while the group moves to another coordinator. `turn` has the order of a group's events and records.
WITH history AS (
  SELECT *, struct(arrival, coalesce(topic_prefix, ''), version) AS turn FROM followed_events
), plans AS (
  SELECT group_id, coordinator, at_ms, turn, generation_id FROM history WHERE event = 'plan_made' AND moved > 0
), gone AS (
  SELECT group_id, coordinator, member_id, at_ms
  FROM history
  WHERE event = 'member_left' OR (event = 'member_expired' AND why <> 'revocation_overdue')
), ended AS (
  SELECT group_id, coordinator, turn FROM history WHERE event IN ('rebalance_completed', 'group_emptied')
), members AS (
  SELECT group_id, coordinator, struct(arrival, coalesce(topic_prefix, ''), version) AS turn, assignment_epoch, member.*
  FROM followed_groups LATERAL VIEW explode(members) AS member
  WHERE type = 'consumer'
), owners AS (
  SELECT group_id, coordinator, turn, assignment_epoch, member_id, topic, partition
  FROM members
       LATERAL VIEW explode(array(assigned, revoking)) AS owned
       LATERAL VIEW explode(owned) AS topic, numbers
       LATERAL VIEW explode(numbers) AS partition
), targets AS (
  SELECT group_id, coordinator, turn, member_id, topic, partition
  FROM members LATERAL VIEW explode(target) AS topic, numbers LATERAL VIEW explode(numbers) AS partition
), moved AS (
  SELECT owners.*
  FROM owners JOIN targets USING (group_id, coordinator, turn, topic, partition)
  WHERE owners.member_id <> targets.member_id
), given AS (
  SELECT group_id, coordinator, at_ms, turn, handover.topic, handover.partition, handover.before AS member_id
  FROM history LATERAL VIEW explode(handovers) AS handover
  WHERE event = 'assignment_changed' AND handover.before IS NOT NULL AND handover.after IS NULL
), given_up AS (
  SELECT given.* FROM given LEFT ANTI JOIN gone USING (group_id, coordinator, member_id, at_ms)
), taken AS (
  SELECT given.* FROM given LEFT SEMI JOIN gone USING (group_id, coordinator, member_id, at_ms)
), taken_from AS (
  SELECT taken.*, max(ended.turn) AS after
  FROM taken LEFT JOIN ended
    ON ended.group_id = taken.group_id AND ended.coordinator = taken.coordinator AND ended.turn < taken.turn
  GROUP BY ALL
), waits AS (
  SELECT g.group_id, g.coordinator, g.member_id, topic, partition, g.at_ms - max(plans.at_ms) AS wait_ms
  FROM given_up AS g
  JOIN plans
    ON plans.group_id = g.group_id AND plans.coordinator = g.coordinator
       AND plans.at_ms <= g.at_ms AND plans.turn < g.turn
  GROUP BY g.group_id, g.coordinator, g.member_id, topic, partition, g.at_ms, g.turn
  UNION ALL
  SELECT t.group_id, t.coordinator, t.member_id, t.topic, t.partition, t.at_ms - min(plans.at_ms)
  FROM taken_from AS t
  JOIN moved
    ON moved.group_id = t.group_id AND moved.coordinator = t.coordinator AND moved.member_id = t.member_id
       AND moved.topic = t.topic AND moved.partition = t.partition
       AND (t.after IS NULL OR moved.turn > t.after) AND moved.turn < t.turn
  JOIN plans
    ON plans.group_id = t.group_id AND plans.coordinator = t.coordinator
       AND plans.generation_id = moved.assignment_epoch
       AND (t.after IS NULL OR plans.turn > t.after) AND plans.turn < t.turn
  GROUP BY t.group_id, t.coordinator, t.member_id, t.topic, t.partition, t.at_ms, t.turn
)
SELECT group_id,
       coordinator,
       member_id,
       count(*)     AS partitions,
       max(wait_ms) AS longest_wait_ms,
       sum(wait_ms) AS wait_ms
FROM waits
GROUP BY group_id, coordinator, member_id
ORDER BY longest_wait_ms DESC, group_id, coordinator, member_id
