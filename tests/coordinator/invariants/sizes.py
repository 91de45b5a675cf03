"""promises.md 4: the outputs of a step are bounded; beyond the bound they are linear in the bytes of its requests."""

from collections import Counter

from coordinator.base.limits import GROUP_STEP_BYTES_MAX, RECORD_BYTES_MAX, STEP_BYTES_MAX, STEP_BYTES_PER_BYTE
from coordinator.messages.outputs import Output, size_of
from coordinator.messages.responses import Reply
from tests.coordinator.invariants.step import Step

LAST_BYTES_MAX = 2 * RECORD_BYTES_MAX
"""The outputs of the last request that is handled below the bound, for example a response and a record."""

FEW = 50
"""The number of outputs and members that are never too large together, as in nearly all steps."""


class OutputsAreBounded:
    """A step's outputs have a bound, plus a multiple of the requests; so do the records of each group."""

    def watch(self, step: Step) -> None:
        if len(step.news) + sum(map(_members, step.news)) < FEW:
            return
        free = STEP_BYTES_PER_BYTE * sum(received.size_bytes for received in step.received) + LAST_BYTES_MAX
        groups, total = Counter[str | None](), 0
        for output in step.outputs:
            size = size_of(output)
            total += size
            if not isinstance(output, Reply):
                groups[output.group_id] += size
        assert total <= STEP_BYTES_MAX + free, f"the outputs of a step have {total} bytes, allowed are {free}"
        group_id, largest = groups.most_common(1)[0] if groups else (None, 0)
        assert largest <= GROUP_STEP_BYTES_MAX + free, f"{largest} bytes are published of {group_id} in one step"


def _members(output: Output) -> int:
    """Return the number of members that an output lists."""
    about = output.answer if isinstance(output, Reply) else getattr(output, "record", None)
    return len(getattr(about, "members", None) or ())
