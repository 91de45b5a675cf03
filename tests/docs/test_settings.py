"""docs/settings.md: every setting has a row with the default and the values of the class `Settings`."""

from tests.docs.settings_table import PAGE, ROW, cells, written


def test_every_setting_has_one_row() -> None:
    rows = [found["name"] for found in ROW.finditer(PAGE.read_text())]
    assert sorted(rows) == sorted(cells())


def test_the_rows_match_the_class() -> None:
    """`make docs-tables` writes the rows."""
    text = PAGE.read_text()
    assert text == written(text)


def test_every_row_has_a_meaning() -> None:
    assert [found["name"] for found in ROW.finditer(PAGE.read_text()) if len(found["meaning"]) < 10] == []
