"""Test that a worker stops in time, without a broker and without waiting:

    python -m pytest -q examples/test_revocation.py

Output:

    2 passed
"""

from streaming.client import GroupMember
from streaming.testing import InMemoryCoordinator


class Recorder:
    """Records cameras into open files, and closes a file when its camera is revoked or lost."""

    def __init__(self, name: str) -> None:
        self.open: set[str] = set()
        self.unsafe: set[str] = set()
        self.member = GroupMember(
            ["gate", "yard"],
            group_id="cameras",
            client_id=name,
            on_assigned=self.open.update,
            on_revoked=self.open.difference_update,
            on_lost=self.discard,
        )

    def discard(self, cameras: frozenset[str]) -> None:
        """Mark files that another recorder may have written to already."""
        self.open -= cameras
        self.unsafe |= cameras


def test_a_camera_has_one_open_file(group_coordinator: InMemoryCoordinator) -> None:
    first, second = Recorder("first"), Recorder("second")
    group_coordinator.poll_with(first.member)
    group_coordinator.settle()
    assert first.open == {"gate", "yard"}
    group_coordinator.poll_with(second.member)
    group_coordinator.settle()
    assert not first.open & second.open
    assert first.open | second.open == {"gate", "yard"}
    for camera in second.open:
        group_coordinator.assert_owner(camera, 0, second.member)


def test_the_files_of_a_recorder_that_hung_are_unsafe(group_coordinator: InMemoryCoordinator) -> None:
    recorder = Recorder("first")
    group_coordinator.poll_with(recorder.member)
    group_coordinator.settle()
    group_coordinator.expire(recorder.member)
    assert recorder.open == {"gate", "yard"}
    recorder.member.poll()
    assert (recorder.open, recorder.unsafe) == (set(), {"gate", "yard"})
