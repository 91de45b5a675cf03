"""Hard bounds on the contents of a request and on the data of a group, each with its reason.

Bounds that an operator chooses (session timeouts, group size, retention) are in `config`. A request beyond a bound of
this module is answered with an error code and changes nothing.
"""

GROUP_ID_CHARS_MAX = 249
"""As long as a topic name: group ids become record keys, file names and labels. Beyond it: INVALID_GROUP_ID."""

ID_CHARS_MAX = 512
"""Request, member, instance, client and mailbox ids. A member id is a client id of up to 249 plus a suffix of 37."""

HOST_CHARS_MAX = 255
"""The longest name that DNS allows."""

REASON_CHARS_MAX = 255
"""A client's own reason for a join or a leave (KIP-800 cuts at 255 as well)."""

NAME_CHARS_MAX = 249
"""Topic, protocol and protocol type names (Kafka's `Topic.MAX_NAME_LENGTH`)."""

PROTOCOLS_MAX = 64
"""Assignors that one member may offer; clients offer one to four."""

PROTOCOL_METADATA_BYTES_MAX = 262_144
"""One subscription: about ten thousand topic names with their owned partitions."""

ASSIGNMENT_BYTES_MAX = 1_048_576
"""One member's assignment. Kafka bounds all assignments of a group by its largest message, 1 MB by default."""

ASSIGNMENTS_MAX = 10_000
"""Members that the leader's sync may name, and so the largest group that `group_max_size` can allow."""

SESSION_TIMEOUT_MS_MAX = 1_800_000
"""The longest session timeout and heartbeat interval that the consumer protocol may be set to: half an hour."""

SUBSCRIBED_NAMES_MAX = 10_000
"""Topics that one member of the consumer protocol may subscribe to by name, or by its pattern."""

PATTERN_CHARS_MAX = 1_024
"""The length of a pattern of topic names. RE2 matches in linear time, so this bounds the time too."""

PATTERNS_MAX = 1_000
"""Different patterns that the members of one group may have."""

TOPIC_PARTITIONS_MAX = 100_000
"""Partitions that a fact about one topic may have."""

PLANNED_PARTITIONS_MAX = 200_000
"""Partitions of all topics of one group of the consumer protocol. An assignor takes some microseconds for each."""

GROUP_SUBSCRIPTIONS_BYTES_MAX = 5 * 2**20
"""Subscriptions of all members of one group of the consumer protocol. Beyond it: GROUP_MAX_SIZE_REACHED."""

GROUP_RESOLUTIONS_BYTES_MAX = 5 * 2**20
"""Topics of all patterns of one group: two of the longest that a request can bring, as a member may change its pattern.
The state and the group's record have them. Beyond it, a heartbeat is answered GROUP_MAX_SIZE_REACHED, and
`group_topics` INVALID_REQUEST."""

OWNED_PARTITIONS_MAX = PLANNED_PARTITIONS_MAX
"""Partitions that one heartbeat may list as owned, over all topics: a member is assigned no more. Beyond it:
INVALID_REQUEST."""

HEARTBEATS_MAX = 1_000
"""Heartbeats that one record may have. With ids of the usual lengths it takes some 150 KB."""

HEARTBEAT_BYTES = 256
"""The bytes for which each of these heartbeats counts in the budget of a step. With ids of the usual lengths, the size
of the record covers them. So the heartbeats of one step are bounded, however short the ids are."""

LEAVING_MEMBERS_MAX = 10_000
"""Members that one leave request may name."""

PARTITIONS_PER_REQUEST_MAX = 10_000
"""Partitions that one commit or fetch may name."""

PENDING_MAX = 10_000
"""Pending ids of one group: MEMBER_ID_REQUIRED handed them out and no join has used them. Beyond it the oldest one is
removed, and a join with it is answered UNKNOWN_MEMBER_ID. Kafka bounds pending ids only by their time."""

PENDING_OFFSETS_MAX = 10_000
"""Offsets of open transactions of one group. Beyond it a commit is answered COORDINATOR_LOAD_IN_PROGRESS, which
producers retry. An open transaction ends by itself after its timeout, 15 minutes at most by a broker's default."""

RECORD_OFFSET_MAX = 2**62 - 1
"""The offset of a record in the transactions topic: far beyond any, and so far below 2^63 that a report can pass it."""

RECORD_OFFSET_END = RECORD_OFFSET_MAX + 1
"""A place above all others."""

ENDED_TRANSACTIONS_MAX = 1_000
"""Ended transactions that one report may name."""

OPEN_TRANSACTIONS_MAX = 1_000
"""Open transactions of one shard that a report names, and that a shard keeps. Those that begin beyond them hold back
what comes after them, until one of the others ends, or until more have ended than one report may name."""

OPEN_TRANSACTIONS_NAMED_MAX = 10_000
"""Open transactions that a report may name at most: about 400 KB."""

OPEN_TRANSACTIONS_WRITTEN_MAX = 5_000
"""Open transactions of one shard in which gateways write. Beyond it a commit is answered COORDINATOR_LOAD_IN_PROGRESS,
which producers retry. Several gateways may look at the same moment, so a report may name more."""

SETTLED_BYTES_MAX = 8 * 2**20
"""Output for one report of ended transactions. The commits beyond it stay pending, until the driver reports them again.
A commit is at most as large as its request, so one report brings two such records at most."""

REPUBLISHED_OFFSETS_MAX = 100
"""Offsets that one request may have written again: 100 records with the longest metadata are some 500 KB of output."""

FILTERS_MAX = 64
"""States or types that one listing may name; seven states and two types exist."""

REMOVED_GROUPS_MAX = 10_000
"""Removed groups of one shard whose last generation is kept; beyond it the oldest entry is dropped."""

REMOVED_GROUP_MS = 24 * 3_600_000
"""The retention time of that entry: far longer than any client waits for a response that names a generation."""

FENCING_TOKEN_FLOOR_MAX = 2**52
"""As microseconds since 1970 that is the year 2112. Later tokens stay below 2^53, up to which JavaScript, Lua and the
usual JSON readers hold integers exactly."""

ENDED_MS = 10 * 60_000
"""The retention time of the end of a group that never had a generation. A new group with its id has to be later, and
requests may wait in the log, or clocks differ, for as long as this. Many such ends must be dropped soon."""

SHORT_REMOVED_GROUPS_MAX = REMOVED_GROUPS_MAX // 2
"""Beyond this number of removed groups, only those that had a generation are kept: the others never displace them."""

COMMIT_VERSION_MAX = 10
"""The newest version of Kafka's OffsetCommit."""

COMMIT_METADATA_CHARS_MAX = 65_536
"""The bound for parsing; a commit is checked against `offset_metadata_max_bytes`."""

RECORD_BYTES_MAX = 8 * 2**20
"""A record of any of the coordinator's topics. A larger output is replaced by a short one that names the size."""

RULES_MAX = 1_000
"""Access rules; every shard keeps all of them in its state, and every batch carries that state."""

RULES_AHEAD_MS = 300_000
"""The longest time that the `made_ms` of access rules may be in the future. Later rules replace earlier ones, so rules
dated next year could not be replaced until then."""

DECISIONS_MAX = 2**16
"""The number of access decisions that are cached, some 300 bytes each."""

ACTIONS_MAX = PARTITIONS_PER_REQUEST_MAX + 1
"""Actions that one access check may name: one on a group, and one on each topic of a commit."""

STEP_BYTES_MAX = 32 * 2**20
"""Output of one step of a shard beyond the size of its requests. Requests that come after that wait for the next step.
A worker holds several copies of a step's outputs at once, so this bounds its memory."""

GROUP_STEP_BYTES_MAX = 8 * 2**20
"""The same for one group, so that one group's outputs do not delay the shard's other groups."""

STEP_BYTES_PER_BYTE = 4
"""Output for each byte of a request that counts towards neither bound: a commit is answered and published."""

DEFERRED_BYTES_MAX = 16 * 2**20
"""Requests that may wait in a shard's state for the next step. Beyond it: COORDINATOR_LOAD_IN_PROGRESS."""

ANSWER_BYTES_FREE = 16 * 2**10
"""A response up to this size is never refused for its size."""

ASK_BYTES_MAX = ANSWER_BYTES_FREE
"""Topic names for which the response to one heartbeat asks. A plain heartbeat has some hundred bytes, so its response
must not have all names of a group. The next response asks for the rest."""

ANSWER_BYTES_BURST = 16 * 2**20
"""Larger responses that repeat stored data (a description, a listing, all offsets, all members) are sent until this
number of bytes is used up. Beyond it: COORDINATOR_LOAD_IN_PROGRESS."""

ANSWER_BYTES_PER_S = 2**20
"""The rate at which that allowance is restored, by the time of the log."""

PUBLISH_BYTES_FREE = 64 * 2**10
"""A group with a record up to this size is published at every change."""

PUBLISH_BYTES_PER_S = 4 * 2**20
"""The maximum rate at which a larger group is published while its static members restart."""

GROUP_PROTOCOLS_BYTES_MAX = 5 * 2**20
"""Subscription metadata of all members of one group. The leader's response holds it in base 64, in one record. Beyond
it: GROUP_MAX_SIZE_REACHED."""

JOINS_AGAIN_MS_MIN = 1_000
"""The minimum length of a further join round when no member has joined: a static member may ask for a round of 1 ms."""

OFFSETS_PER_GROUP_MAX = 100_000
"""Committed offsets of one group; Kafka's largest clusters have about as many partitions. Beyond it, for each
partition: INVALID_COMMIT_OFFSET_SIZE."""

TIME_MS_MAX = 2**53
"""A time in Unix milliseconds in a request; JSON readers hold integers up to this one exactly."""

TIME_MS_MIN = -(2**60)
"""A time earlier than every other."""

AWAY_MS_MAX = 600_000
"""The maximum delay that a shard assumes beyond the latest record of its log: the driver's clock may be wrong."""

CLOCK_STANDS_STILL_MS_MAX = 60_000
"""The longest time by which a shard's time may grow in one batch while the driver's clock is behind the log."""

POLICIES_MAX = 200
"""Policy entries; every shard keeps all of them in its state, and every batch carries that state."""

POLICIES_BYTES_MAX = 64 * 2**10
"""The size of all policy entries together, encoded and not deflated. Beyond it: INVALID_REQUEST."""

POLICIES_AHEAD_MS = RULES_AHEAD_MS
"""The longest time that the `made_ms` of policies may be in the future, as for access rules."""

POLICY_ASSIGNORS_MAX = 16
"""Assignors that one policy entry may name; four have assignments of partitions alone."""

POLICY_LOOKUPS_MAX = 2**16
"""The number of groups whose policy entry is cached, some 150 bytes each."""

FREEZE_MS_MAX = 72 * 3_600_000
"""The longest freeze: a weekend. Beyond it, standbys and uneven assignments would be forgotten."""

FREEZE_WINDOWS_MAX = 21
"""Windows of the week in which a group is frozen: three for each day."""

SHORT_MEMBERSHIPS_MAX = 20
"""Ends of memberships of one client that are counted for its quarantine."""

UNSTABLE_CLIENTS_MAX = 64
"""Clients of one group whose ends of memberships are counted. Beyond it, the one that ended longest ago is dropped."""

NAMESAKES_MAX = 16
"""Members that may have one identity before it counts as shared by several clients, whenever they joined."""

UNSTABLE_CHECK_MS = 60_000
"""A membership that ends by itself within this time of its beginning counts for a quarantine."""

SEATED_MAX = 20_000
"""Members of one generation, those that are gone included, whose ids are remembered because of policies: twice the
largest group. The newcomer beyond it rebalances, and then the next generation remembers only its own members."""

SEAT_OFFER_MS = 15_000
"""How long a member may take a vacancy that is offered to it: clients join within some heartbeats, and then sync."""

POLICY_CHANGES_EVERY_MS = 1_000
"""Deadlines of offers, and of vacancies in a freeze, fall on multiples of this time, so that many fire at once."""

MOVE_PART_BYTES = 512 * 2**10
"""One part of the state of a group that moves to another coordinator; in base 64 it fits into a broker's default
1 MB."""

MOVE_PARTS_MAX = 64
"""Parts of one group: 32 MiB. Beyond it: INVALID_REQUEST."""

MOVE_INFLATED_BYTES_MAX = 64 * 2**20
"""The inflated state of one group that arrives: a made-up state of few bytes may inflate to very many. Beyond it:
refused, `unsound`."""

SENT_MAX = 256
"""Names of one shard that are in transit to another coordinator, or wait for open transactions before. Every batch
carries their states. Beyond it: INVALID_REQUEST."""

MOVE_DRAIN_MS = 5_000
"""How long a released name waits for the ends of its open transactions, while its group accepts no further commits
inside transactions. Kafka Streams ends a transaction 10 s after its begin, so a producer that waits keeps its own."""

PARTIAL_TRANSFERS_MAX = 8
"""Moves to one shard with missing parts. Beyond it the move is refused, `busy`."""

MOVE_AGE_MS = 7 * 24 * 3_600_000
"""The maximum age of a copy of a group that may be adopted."""

VERDICT_MS = 2 * MOVE_AGE_MS
"""The retention time of the verdict about a move: longer than a copy of the group may be adopted."""

VERDICTS_DROPPED_EVERY_MS = 3_600_000
"""How often a shard looks for verdicts that were kept long enough."""

MOVE_CLOCK_MS = 300_000
"""How far the time of a group that arrives may be ahead of the time of its record."""

MOVE_NUMBER_MAX = 2**53
"""The number of a move is a fencing token, and JSON readers hold integers up to this one exactly."""

LOST_GENERATIONS = 1_000
"""How far the generation of a group goes on if it is imported from a state that is not its newest one. Its clients may
have heard of later generations, but hardly of so many."""

SLOTS = 1_024
"""The sets into which names are divided, so that coordinators share the names."""

SLOT_BITMAP_BYTES = SLOTS // 8
"""The size of a set of slots in a record: one bit for each slot."""

SLOTS_AHEAD_MS = RULES_AHEAD_MS
"""The longest time that the `made_ms` of released slots may be in the future. A slot moves again only with a later one,
so slots dated next year could not move until then."""

SLOTS_AGAIN_MS = VERDICT_MS - 24 * 3_600_000
"""How long released slots may be sent again. A day later the source drops its entries of names that are elsewhere; the
day is far longer than clocks differ."""

ELSEWHERE_MAX = 8_192
"""Names that one part of `adopt_slots` may have. A part has at most `MOVE_PART_BYTES` bytes of them too."""

GUESTS_LISTED_MAX = 1_000
"""Guests that one response to `describe_slots` names."""

PARTITIONS_MAX = 1_000
"""Request partitions of one coordinator, as the setting `request_partitions` has it."""

PARTIAL_SLOT_TRANSFERS_MAX = 4_096
"""Moves of slots to one shard with missing records, of which each shard of a peer has its own. Beyond it: ignored."""

NEVER_MS = 2**62
"""A time later than any other, in milliseconds: the deadline of what has none."""
