"""The growth of a coordinator into a new one: what the two must be before all slots move, and whether the old one is
empty afterwards.

Source: moving.md 4.4.
"""

import json
import shlex

from streaming.administration.move_slots import AskShards, described
from streaming.errors import Exit, NoAnswer, UserError
from streaming.views.text import escape


class NotPrepared(UserError):
    """A coordinator cannot give its groups to the new one yet, or the new one cannot take them."""

    exit_code = Exit.NEEDS_A_PERSON


def check_prepared(source: AskShards, of: str, target: AskShards, to: str) -> None:
    """Check that two coordinators run and are peers, and that the new one began without slots.

    Args:
        source, target: Send requests to the shards of the old coordinator, and of the new one.
        of, to: Their prefixes.

    Raises:
        NotPrepared: A coordinator must be started, or restarted with other settings.
        RequestRefused: The sender may not see the slots.
        NoAnswer: The old coordinator does not answer.
    """
    old = described(source)
    try:
        new = described(target)
    except NoAnswer:
        raise NotPrepared(f"The coordinator {escape(to)} does not answer: start it as shown above.") from None
    for mine, other, answers in ((of, to, old), (to, of, new)):
        if other not in answers[0].peers:
            raise NotPrepared(f"{escape(mine)} has no peer {escape(other)}: restart it as shown above.")
    if any(each.owner == to and not each.number for answer in new for each in answer.owned):
        raise NotPrepared(
            f"{escape(to)} has slots of its own, so both would create groups: start it as shown above, with"
            f" COORDINATOR_SLOTS=none and an empty checkpoint."
        )


def check_empty(source: AskShards, of: str) -> None:
    """Check that the old coordinator has no slot and no group left.

    Raises:
        NoAnswer: It has some, or does not answer.
    """
    if any(answer.guests or any(each.owner == of for each in answer.owned) for answer in described(source)):
        raise NoAnswer(f"{escape(of)} still has groups. The same command continues.")


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
