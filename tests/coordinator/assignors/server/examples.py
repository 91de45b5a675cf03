"""Groups for tests of the server assignors, in a short notation.

T1:3 T2:4                     topics with their numbers of partitions; T1's id ends with 1, T2's with 2
A; B{T1}; C(i0) has T1 0-2    members as they joined: subscription if not all topics, instance id, target before
A T1 0-2; B T2 0 1; C         targets
"""

import re
from base64 import urlsafe_b64encode
from collections.abc import Mapping

from coordinator.assignors.server import GroupSpec, MemberSpec, Target, Targets

MEMBER = re.compile(r"(?P<id>[^({ ]+)(?:\((?P<instance>\w+)\))?(?:\{(?P<topics>[^}]*)\})?(?: has (?P<has>.*))?")


def id_of(topic: str) -> str:
    """Return the id of a topic: 16 bytes, all zero but the last ones, which are the number in the topic's name."""
    return urlsafe_b64encode(int(topic[1:]).to_bytes(16, "big")).rstrip(b"=").decode()


def spec(topics: str, members: str, ids: Mapping[str, str] | None = None) -> GroupSpec:
    """Return a group.

    Args:
        ids: The ids of topics whose names have no number.
    """
    counts = {name: int(count) for name, _, count in (each.partition(":") for each in topics.split())}
    id_by_name = ids or {name: id_of(name) for name in counts}
    found = []
    for text in members.split("; "):
        match = MEMBER.fullmatch(text)
        assert match is not None, text
        names = match["topics"].split() if match["topics"] is not None else list(counts)
        found.append(
            MemberSpec(
                match["id"],
                match["instance"],
                frozenset(id_by_name[name] for name in names),
                _target(match["has"] or "", id_by_name),
            )
        )
    return GroupSpec(
        found,
        {id_by_name[name]: count for name, count in counts.items()},
        {topic_id: name for name, topic_id in id_by_name.items()},
        len({member.topic_ids for member in found}) == 1,
        len(found[0].topic_ids),
    )


def targets(text: str, ids: Mapping[str, str] | None = None) -> Targets:
    """Return targets from their notation."""
    parts = (each.partition(" ") for each in text.split("; "))
    return {member_id: _target(rest, ids or {}) for member_id, _, rest in parts}


def _target(text: str, ids: Mapping[str, str]) -> Target:
    target: Target = {}
    topic = ""
    for word in text.replace(",", "").split():
        if word[0].isalpha():
            topic = word
        else:
            first, _, last = word.partition("-")
            topic_id = ids.get(topic) or id_of(topic)
            target.setdefault(topic_id, []).extend(range(int(first), int(last or first) + 1))
    return target
