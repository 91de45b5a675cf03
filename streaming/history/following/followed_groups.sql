-- The records of groups, with the columns that `followed_events` adds. A record that is published when its group
-- arrives keeps its time, which is that of the group's state. Its version is above that of the event of the arrival.
SELECT groups.*,
       coalesce(coordinator, groups.topic_prefix, '') AS coordinator,
       coalesce(array_max(transform(
         filter(arrivals, come -> come.version <= groups.version OR come.at_ms < groups.since_ms),
         come -> come.number)), 0) AS arrival
FROM groups LEFT JOIN group_moves
  ON group_moves.group_id = groups.group_id AND group_moves.topic_prefix = groups.topic_prefix
