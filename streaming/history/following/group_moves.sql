-- A row for each group that has moved and each coordinator that has had it: the coordinator that has the group now, or
-- had it last, and the moves with which the group came to `topic_prefix`.
WITH moves AS (
  SELECT group_id, event, number, at_ms, version, topic_prefix,
         if(event = 'group_arrived', `from`, topic_prefix) AS source,
         if(event = 'group_moved', `to`, topic_prefix)     AS target
  FROM events
  WHERE event IN ('group_moved', 'group_arrived')
), moved AS (
  SELECT group_id,
         array_union(collect_set(source), collect_set(target)) AS prefixes,
         max_by(target, number)                                AS coordinator,
         collect_list(if(event = 'group_arrived', struct(topic_prefix AS prefix, number, at_ms, version), NULL))
           AS arrivals
  FROM moves
  GROUP BY group_id
)
SELECT group_id, topic_prefix, coordinator, filter(arrivals, come -> come.prefix = topic_prefix) AS arrivals
FROM moved LATERAL VIEW explode(prefixes) AS topic_prefix
