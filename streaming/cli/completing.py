"""Group ids for a shell to complete."""

from streaming.cli.showing import folded
from streaming.config.settings import Settings


def complete(settings: Settings, begun: str) -> list[str]:
    """Return the ids of the present groups that begin so, but for those with characters that a terminal obeys."""
    present_ids = (group.group_id for group in folded(settings, events=False).present())
    return [group_id for group_id in present_ids if group_id.startswith(begun) and group_id.isprintable()]
