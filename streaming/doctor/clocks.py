"""The difference between another machine's clock and that of this machine, as far as it can be known.

A response with a time of its sender bounds the difference: the sender made it between our request and its arrival here.
"""

from typing import NamedTuple

from streaming.doctor.case import Finding, ok, wrong


class ShownTime(NamedTuple):
    """A time that another machine has sent. All times are Unix milliseconds.

    Args:
        asked_ms: Our clock before the request.
        answered_ms: Our clock after the response.
        shown_ms: The time in the response.
        resolution_ms: The time was rounded down to a multiple of this.
    """

    asked_ms: int
    answered_ms: int
    shown_ms: int
    resolution_ms: int = 1

    @property
    def bounds_ms(self) -> tuple[int, int]:
        """The least and the greatest difference of the other clock; positive if it is ahead."""
        return self.shown_ms - self.answered_ms, self.shown_ms + self.resolution_ms - self.asked_ms


def difference(whose: str, shown: ShownTime, slack_ms: int) -> Finding:
    """Return a finding about the difference of a clock.

    Args:
        whose: The clock, as the subject of a sentence.
        slack_ms: The setting `clock_slack_ms`: a greater difference is wrong.
    """
    least, greatest = shown.bounds_ms
    text = f"{whose} is between {_words(least)} and {_words(greatest)} of this machine's."
    if least <= slack_ms and greatest >= -slack_ms:
        return ok(text)
    return wrong(text, f"Synchronize the clocks: clock_slack_ms allows {slack_ms} ms.")


def _words(difference_ms: int) -> str:
    return f"{-difference_ms} ms behind" if difference_ms < 0 else f"{difference_ms} ms ahead"
