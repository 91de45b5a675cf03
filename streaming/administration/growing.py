"""The growth of a coordinator into a new one: what the two must be before all slots move, and whether the old one is
empty afterwards.

Source: moving.md 4.4.
"""

import json
import shlex
from collections.abc import Sequence

from coordinator.outputs import DescribeSlotsAnswer
from streaming.errors import Exit, UserError
from streaming.views.text import escape


class NotPrepared(UserError):
    """A coordinator cannot give its groups to the new one yet, or the new one cannot take them."""

    exit_code = Exit.NEEDS_A_PERSON


def check_prepared(
    of: str, source: Sequence[DescribeSlotsAnswer], to: str, target: Sequence[DescribeSlotsAnswer]
) -> None:
    """Check that two coordinators are peers, and that the new one began without slots.

    Args:
        of, to: The prefixes of the old coordinator and of the new one.
        source, target: The responses of all their shards.

    Raises:
        NotPrepared: A coordinator must be restarted with other settings.
    """
    for mine, other, answers in ((of, to, source), (to, of, target)):
        if other not in answers[0].peers:
            raise NotPrepared(f"{escape(mine)} has no peer {escape(other)}: restart it as shown above.")
    if any(each.owner == to and not each.number for answer in target for each in answer.owned):
        raise NotPrepared(
            f"{escape(to)} has slots of its own, so both would create groups: start it as shown above, with"
            f" COORDINATOR_SLOTS=none and an empty checkpoint."
        )


def is_empty(of: str, source: Sequence[DescribeSlotsAnswer]) -> bool:
    """Return whether a coordinator has no slot and no group left."""
    return not any(answer.guests or any(each.owner == of for each in answer.owned) for answer in source)


def steps(of: str, to: str, shards: int, bootstrap_servers: str) -> str:
    """Return the commands that prepare both coordinators."""
    return f"""Prepare both coordinators:
  1. Create a key for both, unless there is one:
     openssl rand -base64 32 > peers.key
  2. Start {escape(to)}, with a new FOLDER:
     COORDINATOR_PEERS={_peers(of)} COORDINATOR_PEER_KEY_FILE=peers.key COORDINATOR_SLOTS=none \\
     COORDINATOR_REQUEST_PARTITIONS={shards} coordinator run --bootstrap-servers {shlex.quote(bootstrap_servers)} \\
     --topic-prefix {shlex.quote(to)} --checkpoint FOLDER
  3. Restart {escape(of)} with {escape(to)} among its peers. Its members wait meanwhile, and stay:
     COORDINATOR_PEERS={_peers(to)} COORDINATOR_PEER_KEY_FILE=peers.key
  4. Run this command again."""


def _peers(peer: str) -> str:
    return shlex.quote(json.dumps([peer]))
