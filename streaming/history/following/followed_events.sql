-- The events, with the coordinator that has the group now, or had it last: the same one for all events of a group that
-- has moved. `arrival` is the number of the move with which the group had come to `topic_prefix`; 0 before the first
-- move. Order the events of a group by arrival, at_ms, version: the versions of an imported group begin at 1.
SELECT events.*,
       coalesce(coordinator, events.topic_prefix, '') AS coordinator,
       coalesce(array_max(transform(
         filter(arrivals, come -> (come.at_ms, come.version) <= (events.at_ms, events.version)),
         come -> come.number)), 0) AS arrival
FROM events LEFT JOIN group_moves
  ON group_moves.group_id = events.group_id AND group_moves.topic_prefix = events.topic_prefix
