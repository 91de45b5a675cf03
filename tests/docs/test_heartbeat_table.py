"""docs/gateway.md: its table of a heartbeat's states is that of the code."""

from tests.docs.heartbeat_table import PAGE, PART, written


def test_the_page_has_the_table_of_the_code() -> None:
    """`make docs-tables` writes it."""
    text = PAGE.read_text()
    assert len(PART.findall(text)) == 1
    assert text == written(text)
