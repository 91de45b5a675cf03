"""Three tables, `events`, `groups` and `offsets`: their columns, and how records become rows.

The table of events has the columns of all kinds of event. A row has null in the columns that its kind does not have.
The column `partitions` is JSON text, since its content differs from kind to kind. `at` is `at_ms`, `since_ms` or
`commit_timestamp_ms` as a timestamp. `topic_prefix` names the coordinator that has published the record. The record
itself does not contain it.
"""

import json
from typing import Any

import msgspec
import pyarrow as pa

from coordinator.messages.events import AnyEvent
from coordinator.messages.group_records import GroupRecord, OffsetRecord

_TEXT, _INT, _LONG = pa.string(), pa.int32(), pa.int64()
_TEXTS = pa.list_(_TEXT)
_AT = ("at", pa.timestamp("ms", tz="UTC"))
_ASSIGNED = pa.map_(_TEXT, pa.list_(_INT))
_TASKS = pa.struct([("active", _ASSIGNED), ("standby", _ASSIGNED), ("warmup", _ASSIGNED)])
_PUBLISHED_BY = ("topic_prefix", _TEXT)

EVENTS = pa.schema([
    ("event", _TEXT), ("group_id", _TEXT), ("version", _LONG), ("at_ms", _LONG), _AT, ("generation_id", _INT),
    # the member, and the reason it gave
    ("member_id", _TEXT), ("group_instance_id", _TEXT), ("client_id", _TEXT), ("client_host", _TEXT),
    ("reason", _TEXT), ("why", _TEXT),
    # rebalance_started, rebalance_completed
    ("cause", _TEXT), ("members", _INT), ("joins_until_ms", _LONG), ("duration_ms", _LONG), ("joins_ms", _LONG),
    ("syncs_ms", _LONG), ("protocol_name", _TEXT), ("leader", _TEXT), ("members_before", _TEXTS),
    ("members_after", _TEXTS), ("joined", _TEXTS), ("gone", _TEXTS),
    # assignment_changed
    ("handovers", pa.list_(pa.struct(
        [("topic", _TEXT), ("partition", _INT), ("before", _TEXT), ("after", _TEXT)]))),
    # member_expired, member_fenced, commit_rejected
    ("silence_ms", _LONG), ("replaced_by", _TEXT), ("replaced_by_client_id", _TEXT),
    ("replaced_by_client_host", _TEXT), ("claimed_generation_id", _INT), ("error", _TEXT), ("partitions", _TEXT),
    # of a shard: rejected, log_broken, clock_ahead, access_denied, access_changed, oversized
    ("partition", _INT), ("offset", _LONG), ("expected", _LONG), ("found", _LONG), ("breaks", _INT),
    ("principal", _TEXT), ("request", _TEXT), ("operation", _TEXT), ("resource", _TEXT), ("names", _TEXTS),
    ("made_ms", _LONG), ("rules", _INT), ("what", _TEXT), ("bytes", _LONG),
    # clock_ahead
    ("records", _INT), ("ahead_ms", _LONG),
    # rebalance_completed, member_fenced
    ("fencing_token", _LONG),
    # of the consumer protocol: plan_made, group_converted, member_away, member_back, epoch_fenced
    ("assignor", _TEXT), ("moved", _INT), ("waited_ms", _LONG), ("group_type", _TEXT), ("generation_before", _INT),
    ("until_ms", _LONG), ("replaces", _TEXT), ("claimed_epoch", _INT), ("member_epoch", _INT),
    # of policies: rebalance_held, seat_vacated, seat_taken, member_quarantined, policy_set, a rebalance that was held
    ("policy", _TEXT), ("held_ms", _LONG), ("how", _TEXT), ("before", _TEXT), ("unowned_ms", _LONG),
    ("identity", _TEXT), ("flaps", _INT), ("times", _INT), ("policies", _INT),
    # of groups that move: group_released, group_moved, group_taken_back, group_arrived, move_ignored
    ("to", _TEXT), ("from", _TEXT), ("move_id", _TEXT), ("number", _LONG), ("version_before", _LONG), ("record", _TEXT),
    # of slots that move: slots_released, slots_adopted, slots_ignored
    ("slots", _TEXT), ("listed", _INT), ("from_shard", _INT),
    # of groups that Kafka's coordinator keeps: observation_began, history_gap, member_gone, an inferred rebalance
    ("founded", pa.bool_()), ("from_offset", _LONG), ("from_generation", _INT), ("to_generation", _INT),
    ("holes", pa.bool_()), ("last_commit_ms", _LONG), ("session_timeout_ms", _INT), ("likely", _TEXT),
    ("how_known", _TEXT), ("not_before_ms", _LONG), ("unplanned_rounds", _INT),
    ("topic_id", _TEXT), ("topic_name", _TEXT),
    # offsets_dropped
    ("current_id", _TEXT),
    # the causes of group epochs of groups that Kafka's coordinator keeps, and topics_named
    ("topics_added", _TEXTS), ("topics_removed", _TEXTS), ("pattern", _TEXT), ("assignor_before", _TEXT),
    ("assignor_after", _TEXT), ("assignors", pa.map_(_TEXT, _TEXTS)), ("timeout_ms", _LONG),
    ("changed", _TEXTS), ("configs", pa.map_(_TEXT, _TEXTS)),
    ("changes", pa.list_(pa.struct([
        ("topic", _TEXT), ("what", _TEXT), ("partitions_before", _INT), ("partitions", _INT),
    ]))),
    # offsets_set
    ("offsets_set", _INT), ("set_back", _INT),
    _PUBLISHED_BY,
])  # fmt: skip

GROUPS = pa.schema([
    ("group_id", _TEXT), ("version", _LONG), ("since_ms", _LONG), _AT, ("state", _TEXT), ("generation_id", _INT),
    ("protocol_type", _TEXT), ("protocol_name", _TEXT), ("leader", _TEXT), ("subscribed_topics", _TEXTS),
    ("members", pa.list_(pa.struct([
        ("member_id", _TEXT), ("group_instance_id", _TEXT), ("client_id", _TEXT), ("client_host", _TEXT),
        ("session_timeout_ms", _INT), ("rebalance_timeout_ms", _INT), ("assigned", _ASSIGNED),
        ("fencing_token", _LONG), ("rack_id", _TEXT), ("member_epoch", _INT), ("state", _TEXT),
        ("subscribed_topics", _TEXTS), ("regex", _TEXT), ("revoking", _ASSIGNED), ("target", _ASSIGNED),
        ("protocol", _TEXT), ("standing", _TEXT),
        ("work", pa.struct([("connectors", _TEXTS), ("tasks", _ASSIGNED)])), ("server_assignor", _TEXT),
        ("streams", pa.struct([
            ("process_id", _TEXT), ("topology_epoch", _INT), ("endpoint", _TEXT),
            ("client_tags", pa.map_(_TEXT, _TEXT)), ("assigned", _TASKS), ("revoking", _TASKS), ("target", _TASKS)])),
    ]))),
    # only groups with epochs have these
    ("type", _TEXT), ("assignment_epoch", _INT),
    # only groups on which a policy has an effect have it
    ("hold", pa.struct([
        ("since_ms", _LONG), ("until_ms", _LONG), ("frozen_until_ms", _LONG), ("vacant", _INT), ("standing_by", _INT),
        ("quarantined", _INT)])),
    # only groups that Kafka's coordinator keeps have these: all, streams groups, share groups
    ("kept_by", _TEXT),
    ("topology", pa.struct([
        ("epoch", _INT), ("validated_epoch", _INT),
        ("subtopologies", pa.map_(_TEXT, pa.struct([
            ("sources", _TEXTS), ("repartition_sources", _TEXTS), ("repartition_sinks", _TEXTS),
            ("changelogs", _TEXTS)]))),
        ("configs", pa.map_(_TEXT, _TEXT))])),
    ("initializing", _ASSIGNED),
    _PUBLISHED_BY,
])  # fmt: skip

OFFSETS = pa.schema([
    ("group_id", _TEXT), ("topic", _TEXT), ("partition", _INT), ("offset", _LONG), ("leader_epoch", _INT),
    ("metadata", _TEXT), ("commit_timestamp_ms", _LONG), _AT, ("expire_timestamp_ms", _LONG), ("generation_id", _INT),
    ("member_id", _TEXT), ("version", _LONG), ("topic_id", _TEXT), ("stands_for", _LONG),
    _PUBLISHED_BY,
])  # fmt: skip

TABLES = {"events": EVENTS, "groups": GROUPS, "offsets": OFFSETS}

NOT_PUBLISHED = frozenset({"at", "topic_prefix"})
"""The columns that are not fields of the records."""

AT_MS = {"events": "at_ms", "groups": "since_ms", "offsets": "commit_timestamp_ms"}
"""The column of each table that `at` is made from."""


def table_of(record: AnyEvent | GroupRecord | OffsetRecord) -> str:
    """Return the name of the table that a record belongs to."""
    return {GroupRecord: "groups", OffsetRecord: "offsets"}.get(type(record), "events")


def to_row(record: AnyEvent | GroupRecord | OffsetRecord, topic_prefix: str) -> dict[str, Any]:
    """Return the row of a record that the coordinator with a topic prefix has published."""
    row: dict[str, Any] = msgspec.to_builtins(record)
    table = table_of(record)
    row["at"], row["topic_prefix"] = row[AT_MS[table]], topic_prefix
    if "partitions" in row:
        row["partitions"] = json.dumps(row["partitions"])
    for name, kind in _WITH_MAPS[table].items():
        if name in row:
            row[name] = _with_maps(row[name], kind)
    return row


def _with_maps(value: Any, kind: pa.DataType) -> Any:
    """Return a value with a list of pairs in place of each dictionary that is a map in a table, as pyarrow wants it."""
    if value is None:
        return None
    if pa.types.is_map(kind):
        return [(key, _with_maps(each, kind.item_type)) for key, each in value.items()]
    if pa.types.is_list(kind) and _has_maps(kind.value_type):
        return [_with_maps(each, kind.value_type) for each in value]
    if pa.types.is_struct(kind):
        return {name: _with_maps(each, kind.field(name).type) for name, each in value.items() if name in kind.names}
    return value


def _has_maps(kind: pa.DataType) -> bool:
    if pa.types.is_list(kind):
        return _has_maps(kind.value_type)
    return pa.types.is_map(kind) or (pa.types.is_struct(kind) and any(_has_maps(field.type) for field in kind))


_WITH_MAPS = {
    table: {field.name: field.type for field in schema if _has_maps(field.type)} for table, schema in TABLES.items()
}
"""The columns of each table that have maps."""
