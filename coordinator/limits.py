"""Hard bounds on what a request may bring and what a group may keep, each with its reason.

Bounds that an operator chooses (session timeouts, group size, retention) are in `config`. A request beyond a bound
of this module is answered with an error code and changes nothing.
"""

GROUP_ID_CHARS_MAX = 249
"""As long as a topic name: group ids become record keys, file names and labels. Beyond it: INVALID_GROUP_ID."""

ID_CHARS_MAX = 512
"""Request, member, instance, client and inbox ids. A member id is a client id of up to 249 plus a suffix of 37."""

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
"""One member's part of a plan. Kafka bounds a whole plan by its largest message, 1 MB by default."""

ASSIGNMENTS_MAX = 10_000
"""Members that one plan may name, and so the largest group that `group_max_size` can ask for."""

LEAVING_MEMBERS_MAX = 10_000
"""Members that one leave request may name."""

PARTITIONS_PER_REQUEST_MAX = 10_000
"""Partitions that one commit or fetch may name."""

PENDING_MAX = 10_000
"""Ids of one group that MEMBER_ID_REQUIRED handed out and that have not come back; beyond it the oldest is forgotten,
and whoever comes with it starts anew (UNKNOWN_MEMBER_ID). Kafka bounds them by their time alone."""

REPUBLISHED_OFFSETS_MAX = 100
"""Offsets that one request may have written again: 100 records with the longest metadata are some 500 KB of output."""

FILTERS_MAX = 64
"""States or types that one listing may ask for; there are five and one."""

GRAVES_MAX = 10_000
"""Forgotten groups of one shard whose last generation is remembered; beyond it the oldest is not."""

GRAVE_MS = 24 * 3_600_000
"""How long that is remembered: far longer than anybody waits for an answer that names a generation."""

FENCING_TOKEN_FLOOR_MAX = 2**52
"""As microseconds since 1970 that is the year 2112. Tokens count on above it and stay below 2^53, up to which
JavaScript, Lua and JSON's usual readers hold integers exactly."""

ENDED_MS = 10 * 60_000
"""How long the end of a group that never had a generation is remembered: a group that is founded anew has to be later,
and requests may wait in the log, or clocks differ, for so long. A flood of such groups is to go soon."""

SHORT_GRAVES_MAX = GRAVES_MAX // 2
"""Beyond so many forgotten groups, only those that had a generation are remembered: the others never push them out."""

COMMIT_METADATA_CHARS_MAX = 65_536
"""Parsed at all; `offset_metadata_max_bytes` is the bound that a commit is judged by."""

RECORD_BYTES_MAX = 8 * 2**20
"""A record of any of the four topics. An output that would be larger is replaced by a short one that says so."""

RULES_MAX = 1_000
"""Rules of who may do what; every shard keeps all of them in its state, and every batch carries that."""

RULES_AHEAD_MS = 300_000
"""How far in the future rules may say that they were made: a later table counts, so one of next year would stay."""

DECISIONS_MAX = 2**16
"""How many decisions about the same rules are remembered, some 300 bytes each."""

ACTIONS_MAX = PARTITIONS_PER_REQUEST_MAX + 1
"""Questions of what one may do that a request may ask at once: about a group, and each topic of a commit."""

STEP_BYTES_MAX = 32 * 2**20
"""What one step of a shard may put out beyond what its requests brought. Requests that come after that wait for the
next step. A worker holds several copies of a step's outputs at once, so this bounds its memory."""

GROUP_STEP_BYTES_MAX = 8 * 2**20
"""The same for one group, so that one group's outputs do not hold up the shard's other groups."""

STEP_BYTES_PER_BYTE = 4
"""Output for each byte of a request that counts towards neither bound: a commit is answered and published."""

DEFERRED_BYTES_MAX = 16 * 2**20
"""Requests that may wait in a shard's state for the next step. Beyond it: COORDINATOR_LOAD_IN_PROGRESS."""

ANSWER_BYTES_FREE = 16 * 2**10
"""An answer up to this size is never refused for its size."""

ANSWER_BYTES_BURST = 16 * 2**20
"""Larger answers that repeat what a group or a shard holds (a description, a listing, all offsets, all members) are
given until so many bytes are used up. Beyond it: COORDINATOR_LOAD_IN_PROGRESS."""

ANSWER_BYTES_PER_S = 2**20
"""How fast that allowance is restored, by the time of the log."""

PUBLISH_BYTES_FREE = 64 * 2**10
"""A group whose record is not larger is published at every change."""

PUBLISH_BYTES_PER_S = 4 * 2**20
"""A larger group whose static members restart is published at most at this rate."""

GROUP_PROTOCOLS_BYTES_MAX = 5 * 2**20
"""Subscription metadata of all members of one group. The leader's answer holds it in base 64, in one record.
Beyond it: GROUP_MAX_SIZE_REACHED."""

JOINS_AGAIN_MS_MIN = 1_000
"""How long at least a join round goes on in which nobody has joined: a static member may ask for a round of 1 ms."""

OFFSETS_PER_GROUP_MAX = 100_000
"""Committed offsets of one group; Kafka's largest clusters have about as many partitions. Beyond it, for each
partition: INVALID_COMMIT_OFFSET_SIZE."""

TIME_MS_MAX = 2**53
"""A time in Unix milliseconds that somebody claims; JSON's readers hold integers up to there."""

TIME_MS_MIN = -(2**60)
"""Earlier than every time."""

AWAY_MS_MAX = 600_000
"""How far beyond the latest record of its log a shard believes that it is late: the driver's clock may be wrong."""

CLOCK_STANDS_STILL_MS_MAX = 60_000
"""How far a shard's time goes on from one batch to the next while the driver's clock is behind the log."""
