"""docs/sizing.md: its example and its tables follow from the formulas and from the shipped costs."""

from tests.docs.sizing_tables import PAGE, PART, PARTS, written


def test_the_page_has_each_part_once() -> None:
    assert sorted(found["name"] for found in PART.finditer(PAGE.read_text())) == sorted(PARTS)


def test_the_parts_are_those_of_the_formulas_and_the_costs() -> None:
    """`make docs-tables` writes them."""
    text = PAGE.read_text()
    assert text == written(text)
