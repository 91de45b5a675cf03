"""The completion of group ids in a shell."""

from streaming.cli.groups.show import folded
from streaming.config.settings import Settings


def complete(settings: Settings, begun: str) -> list[str]:
    """Return the ids of existing groups with this beginning, except ids with characters that control a terminal."""
    present_ids = (group.group_id for group in folded(settings, events=False).present())
    return [group_id for group_id in present_ids if group_id.startswith(begun) and group_id.isprintable()]
