"""The one history of a group at all coordinators that have served it (moving.md 6).

A group that moves has events under the prefix of each coordinator. The events of a move name the other one, and the
number of the move. The numbers grow in the order in which the coordinators served the group.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from msgspec import structs

from coordinator.messages.events import AnyEvent
from coordinator.messages.move_events import GroupArrived, GroupMoved, GroupReleased, GroupTakenBack
from streaming.views.api.fold import Views
from streaming.views.state.group import GroupView


class Life(NamedTuple):
    """The views of one coordinator, and a group in them."""

    views: Views
    group: GroupView


def named_by(group: GroupView) -> list[str]:
    """Return the prefixes of the other coordinators that the events of a group name, each once, in their order."""
    prefixes = dict[str, None]()
    for event in group.events:
        if isinstance(event, GroupArrived):
            prefixes[event.source] = None
        elif isinstance(event, GroupReleased | GroupMoved | GroupTakenBack):
            prefixes[event.to] = None
    return list(prefixes)


def joined(lives: Sequence[Life]) -> Life:
    """Return one life with the events of all. Its other fields are those of the coordinator that has the group now.

    Args:
        lives: One or more, of one group.
    """
    if len(lives) == 1:
        return lives[0]
    stays = sorted((stay for life in lives for stay in _stays(life.group)), key=lambda stay: stay[0])
    views, group = next((life for life in reversed(lives) if life.group.is_there), lives[-1])
    weight = sum(life.group.weight for life in lives)
    whole = structs.replace(group, events=[], weight=0, conversions=[], joined={})
    for _, events in stays:
        for event in events:
            whole.add(event, weight)
    whole.known_from_ms = max(life.views.known_from_ms(life.group) for life in lives)
    return Life(views, whole)


def _stays(group: GroupView) -> Iterator[tuple[int, list[AnyEvent]]]:
    """Yield the events from each arrival to the next one, with the number of the move; 0 before the first arrival."""
    number, events = 0, list[AnyEvent]()
    for event in group.events:
        if isinstance(event, GroupArrived):
            yield number, events
            number, events = event.number, []
        events.append(event)
    yield number, events
