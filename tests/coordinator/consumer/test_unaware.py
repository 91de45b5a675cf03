"""Clients that do not know what heartbeats on their behalf have changed.

A gateway holds the response to a heartbeat, and sends another one for the member when there is a change. If the
connection ends before the response, the client is behind by more than one change, through no fault of its own.
"""

import pytest

from tests.coordinator.consumer.conversation import Conversation

UNAWARE = """
    T:6
    A 0             -> 2 {0 1 2 3 4 5}
    -- 1000
    B 0             -> 3 {}
    A 2             -> 2 {0 1 2}
    A 2 own 0 1 2   -> 3            # held: the client still has epoch 2
    B 3 again       -> 3 {3 4 5}
    -- 1000
    C 0             -> 4 {}
    A 3 again       -> 3 {0 1}      # lost with the connection
"""


def unaware() -> Conversation:
    """Return a group whose member A has epoch 3 and gives up 2, while its client has epoch 2 and owns 0, 1 and 2."""
    return Conversation().plays(UNAWARE)


def test_a_client_that_is_behind_is_told_again_what_it_has_to_give_up():
    """It is not fenced: nobody else has its partitions."""
    unaware().plays("""
        A 2 own 0 1 2 full  -> 3 {0 1}
        A 3 own 0 1         -> 4
        C 4                 -> 4 {2}
    """)


def test_a_client_may_be_behind_by_several_epochs():
    """A change of the epoch alone is held as well."""
    unaware().plays("""
        A 2 own 0 1 2 full  -> 3 {0 1}
        A 3 own 0 1         -> 4        # held
        C -1                -> -1
        -- 1000
        A 4 again           -> 5 {0 1 2}  # lost
        A 3 own 0 1 full    -> 5 {0 1 2}
    """)


@pytest.mark.parametrize(
    "heartbeat",
    [
        "A 2 own 0 1 2 3 full",  # a partition that it cannot have
        "A 1 own 0 1 2 full",  # an epoch from before its last own heartbeat
        "A 2",  # without its partitions
        "A 4 own 0 1 full",  # an epoch that it has not got
    ],
)
def test_a_client_that_cannot_be_the_member_is_fenced(heartbeat: str):
    unaware().plays(f"{heartbeat} -> 110")


def test_a_client_that_has_shown_its_epoch_is_fenced_with_an_older_one():
    """From then on Kafka's rule applies: the previous epoch, with partitions that are assigned."""
    unaware().plays("""
        A 3 own 0 1         -> 4
        A 2 own 0 1 2 full  -> 110
        A 3 own 0 1 full    -> 4 {0 1}
    """)


def test_without_heartbeats_on_its_behalf_a_member_may_own_only_what_is_assigned():
    """As in Kafka: the client has sent the heartbeat whose response told it to give up 2."""
    Conversation().plays(UNAWARE.replace("A 3 again", "A 3      ")).plays("A 2 own 0 1 2 full -> 110")
