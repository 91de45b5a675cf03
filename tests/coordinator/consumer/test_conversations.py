"""Conversations that Kafka's own coordinator classes have answered in the same way (next-generation.md 12)."""

import pytest

from tests.coordinator.consumer.conversation import Conversation

CONVERSATIONS = {
    "handover, a lost answer, a third member": """
        T:4
        A 0               -> 2 {0 1 2 3}
        -- 1000
        B 0               -> 3 {}
        A 2               -> 2 {0 1}
        = Reconciling 3 3
        A 2 own 0 1       -> 3
        -- 1000
        C 0               -> 4 {3}
        A 2 own 0 1 full  -> 4 {0 1}
        A 2 own 0 1 full  -> 110
        B 3               -> 4 {2}
        = Stable 4 4
    """,
    "the plan moves on while a member gives up": """
        T:6
        A 0               -> 2 {0 1 2 3 4 5}
        -- 1000
        B 0               -> 3 {}
        A 2               -> 2 {0 1 2}
        -- 1000
        C 0               -> 4 {}
        A 2               -> 2
        B 3               -> 4
        A 2 own 0 1 2     -> 2 {0 1}
        A 2 own 0 1       -> 4
        B 4               -> 4 {3 4}
        C 4               -> 4 {2 5}
        = Stable 4 4
    """,
    "the plan gives back what is being given up": """
        T:4
        A 0               -> 2 {0 1 2 3}
        -- 1000
        B 0               -> 3 {}
        A 2               -> 2 {0 1}
        B -1              -> -1
        -- 1000
        A 2               -> 2
        A 2 own 0 1 2 3   -> 2
        A 2 own 0 1       -> 4 {0 1 2 3}
        = Stable 4 4
    """,
    "unsubscribing": """
        T:2
        U:2
        A 0 names T U     -> 2 {T 0 1, U 0 1}
        A 2 names T       -> 2 {0 1}
        = Assigning 3 2
        A 2 own T 0 1     -> 2
        -- 1000
        A 2               -> 3
        = Stable 3 3
    """,
    "a static member goes away and comes back": """
        T:4
        A(i) 0            -> 2 {0 1 2 3}
        -- 1000
        B 0               -> 3 {}
        A(i) 2            -> 2 {0 1}
        A(i) 2 own 0 1    -> 3
        B 3               -> 3 {2 3}
        = Stable 3 3
        A(i) -2           -> -2
        = Reconciling 3 3
        A2(i) 0           -> 3 {0 1}
        = Stable 3 3
        A(i) 3            -> 82
        A 3               -> 25
        -- 1000
        A2(i) -2          -> -2
        A3(i) 0 names none -> 4 {}
        -- 1000
        B 3               -> 4 {0 1 2 3}
        = Stable 4 4
    """,
}


@pytest.mark.parametrize("text", CONVERSATIONS.values(), ids=CONVERSATIONS)
def test_conversation(text: str):
    """next-generation.md 12: every answer is the one that Kafka's classes gave."""
    Conversation().plays(text)
