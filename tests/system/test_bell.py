"""The bell on a real broker and a real query."""

from streaming.query import bell
from tests.system.asking import Asker

NEVER_S = 3_600.0


def test_a_record_alone_makes_the_query_look(asker: Asker, monkeypatch) -> None:
    """The query that never looks by itself answers request after request, a heartbeat too: their records ring."""
    monkeypatch.setattr(bell, "LOOK_EVERY_S", NEVER_S)
    member_id, generation_id = asker.alone()
    for _ in range(3):
        assert asker.heartbeat(generation_id, member_id).code == 0
        assert asker.describe().code == 0
