-- The members of consumer groups that others waited for: the time from a plan until they gave up the partitions that it
-- moved, or were dropped because they did not. Partitions of members that left or expired were free at once.
WITH plans AS (
  SELECT group_id, at_ms, version FROM events WHERE event = 'plan_made' AND moved > 0
), gone AS (
  SELECT group_id, member_id, at_ms
  FROM events
  WHERE event = 'member_left' OR (event = 'member_expired' AND why <> 'revocation_overdue')
), given AS (
  SELECT group_id, at_ms, version, handover.topic, handover.partition, handover.before AS member_id
  FROM events LATERAL VIEW explode(handovers) AS handover
  WHERE event = 'assignment_changed' AND handover.before IS NOT NULL AND handover.after IS NULL
), waits AS (
  SELECT given.group_id, given.member_id, topic, partition, given.at_ms - max(plans.at_ms) AS wait_ms
  FROM given
  JOIN plans ON plans.group_id = given.group_id AND plans.at_ms <= given.at_ms AND plans.version < given.version
  LEFT ANTI JOIN gone
    ON gone.group_id = given.group_id AND gone.member_id = given.member_id AND gone.at_ms = given.at_ms
  GROUP BY given.group_id, given.member_id, topic, partition, given.at_ms, given.version
)
SELECT group_id,
       member_id,
       count(*)     AS partitions,
       max(wait_ms) AS longest_wait_ms,
       sum(wait_ms) AS wait_ms
FROM waits
GROUP BY group_id, member_id
ORDER BY longest_wait_ms DESC, group_id, member_id
