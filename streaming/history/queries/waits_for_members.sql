-- The members of consumer groups that others waited for: the time from a plan until they gave up the partitions that it
-- moved, left or were dropped. Of a member that left or was dropped, only the partitions count that a plan had given to
-- another member before, as the group's records show. Partitions that no other member waited for were free at once.
WITH plans AS (
  SELECT group_id, at_ms, version, generation_id FROM events WHERE event = 'plan_made' AND moved > 0
), gone AS (
  SELECT group_id, member_id, at_ms
  FROM events
  WHERE event = 'member_left' OR (event = 'member_expired' AND why <> 'revocation_overdue')
), ended AS (
  SELECT group_id, version FROM events WHERE event IN ('rebalance_completed', 'group_emptied')
), members AS (
  SELECT group_id, version, assignment_epoch, member.*
  FROM groups LATERAL VIEW explode(members) AS member
  WHERE type = 'consumer'
), owners AS (
  SELECT group_id, version, assignment_epoch, member_id, topic, partition
  FROM members
       LATERAL VIEW explode(array(assigned, revoking)) AS owned
       LATERAL VIEW explode(owned) AS topic, numbers
       LATERAL VIEW explode(numbers) AS partition
), targets AS (
  SELECT group_id, version, member_id, topic, partition
  FROM members LATERAL VIEW explode(target) AS topic, numbers LATERAL VIEW explode(numbers) AS partition
), moved AS (
  SELECT owners.*
  FROM owners JOIN targets USING (group_id, version, topic, partition)
  WHERE owners.member_id <> targets.member_id
), given AS (
  SELECT group_id, at_ms, version, handover.topic, handover.partition, handover.before AS member_id
  FROM events LATERAL VIEW explode(handovers) AS handover
  WHERE event = 'assignment_changed' AND handover.before IS NOT NULL AND handover.after IS NULL
), given_up AS (
  SELECT given.* FROM given LEFT ANTI JOIN gone USING (group_id, member_id, at_ms)
), taken AS (
  SELECT given.* FROM given LEFT SEMI JOIN gone USING (group_id, member_id, at_ms)
), taken_from AS (
  SELECT taken.group_id, taken.at_ms, taken.version, topic, partition, member_id, coalesce(max(ended.version), 0) AS after
  FROM taken LEFT JOIN ended ON ended.group_id = taken.group_id AND ended.version < taken.version
  GROUP BY taken.group_id, taken.at_ms, taken.version, topic, partition, member_id
), waits AS (
  SELECT given_up.group_id, member_id, topic, partition, given_up.at_ms - max(plans.at_ms) AS wait_ms
  FROM given_up
  JOIN plans
    ON plans.group_id = given_up.group_id AND plans.at_ms <= given_up.at_ms AND plans.version < given_up.version
  GROUP BY given_up.group_id, member_id, topic, partition, given_up.at_ms, given_up.version
  UNION ALL
  SELECT t.group_id, t.member_id, t.topic, t.partition, t.at_ms - min(plans.at_ms)
  FROM taken_from AS t
  JOIN moved
    ON moved.group_id = t.group_id AND moved.member_id = t.member_id AND moved.topic = t.topic
       AND moved.partition = t.partition AND moved.version > t.after AND moved.version < t.version
  JOIN plans
    ON plans.group_id = t.group_id AND plans.generation_id = moved.assignment_epoch
       AND plans.version > t.after AND plans.version < t.version
  GROUP BY t.group_id, t.member_id, t.topic, t.partition, t.at_ms, t.version
)
SELECT group_id,
       member_id,
       count(*)     AS partitions,
       max(wait_ms) AS longest_wait_ms,
       sum(wait_ms) AS wait_ms
FROM waits
GROUP BY group_id, member_id
ORDER BY longest_wait_ms DESC, group_id, member_id
