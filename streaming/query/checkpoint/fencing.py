"""The floor of the fencing tokens of a new checkpoint: its first token must be higher.

Tokens follow the brokers' clocks, and after the loss of the state its highest tokens are unknown. The groups topic has
them for every existing group: the group's latest record contains its members' tokens.
"""

from collections.abc import Callable
from typing import Annotated

import msgspec

from streaming.config.settings import Settings
from streaming.errors import Exit, UserError
from streaming.kafka.reader import Progress, Record, TopicReader, TopicUnread

READ_S_MAX = 600.0
"""The longest time of a read: enough for some ten million records. A compacted topic holds far fewer."""

_GROUP = b'["group"'


class TokensUnread(UserError):
    """The groups topic could not be read to its end."""

    exit_code = Exit.NEEDS_A_PERSON


class _Member(msgspec.Struct):
    fencing_token: Annotated[int, msgspec.Meta(ge=0, lt=2**53)] = 0


class _Group(msgspec.Struct):
    members: list[_Member] = []


_decoder = msgspec.json.Decoder(_Group)


def find_floor(settings: Settings, report: Callable[[str], None], read_s_max: float = READ_S_MAX) -> int:
    """Return a floor above every fencing token on the groups topic, for a checkpoint without tokens.

    If the setting `fencing_token_floor` gives a floor, the function reads nothing.

    Args:
        report: A callback for sentences about the progress of a long read.

    Raises:
        TokensUnread: The read takes longer than `read_s_max`.
        BrokerUnreachable: No broker answers.
    """
    if settings.fencing_token_floor:
        return settings.fencing_token_floor
    highest = 0
    with TopicReader(settings, [settings.groups_topic], "coordinator-fencing") as topic:
        try:
            for record in topic.backlog(progress=Progress.in_words(report), within_s=read_s_max):
                highest = max(highest, _highest_in(record))
        except TopicUnread as error:
            raise TokensUnread(
                f"{settings.groups_topic} could not be read within {read_s_max:.0f} s for the highest fencing"
                f" token: set fencing_token_floor to a number above all tokens that stores have seen, and start again."
            ) from error
    return highest + 1 if highest else 0


def _highest_in(record: Record) -> int:
    """Return the highest token in a record of the groups topic; 0 for offsets, tombstones and unreadable records."""
    if record.value is None or not record.key.startswith(_GROUP):
        return 0
    try:
        return max((member.fencing_token for member in _decoder.decode(record.value).members), default=0)
    except msgspec.MsgspecError:
        return 0
