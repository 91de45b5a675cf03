"""The cells of docs/settings.md that follow from `Settings`: each setting's default and its accepted values.

`make docs-tables` writes them into the page. The meaning of each setting is written by hand.
"""

import re
import sys
from pathlib import Path
from typing import Any

from streaming.config.settings import Settings

PAGE = Path(__file__).parents[2] / "docs" / "settings.md"
ROW = re.compile(
    r"^\| `(?P<name>\w+)` \| (?P<default>[^|]*) \| (?P<values>[^|]*) \| (?P<meaning>[^|]*) \|$", re.MULTILINE
)

NAMES = {"string": "text", "integer": "number", "array": "list", "object": "table"}


def cells() -> dict[str, tuple[str, str]]:
    """Return the default and the accepted values of each setting, as the page shows them."""
    properties = Settings.model_json_schema()["properties"]
    return {name: (_default(field.default), _values(properties[name])) for name, field in Settings.model_fields.items()}


def _default(value: Any) -> str:
    if value is None or value in ("", (), {}):
        return "none"
    if isinstance(value, tuple):
        return ", ".join(f"`{each}`" for each in value)
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _values(schema: dict[str, Any]) -> str:
    kinds = [kind for kind in schema.get("anyOf", [schema]) if kind["type"] != "null"]
    choices = [f"`{each}`" for kind in kinds for each in kind.get("enum", [kind["const"]] if "const" in kind else [])]
    if choices:
        return ", ".join(choices)
    [kind] = kinds
    if "enum" in kind.get("items", {}):
        return "list of " + ", ".join(f"`{each}`" for each in kind["items"]["enum"])
    if kind["type"] == "boolean":
        return "`true`, `false`"
    if "minimum" in kind:
        return f"{kind['minimum']} to {kind['maximum']}" if "maximum" in kind else f"{kind['minimum']} or more"
    return "secret" if kind.get("format") == "password" else NAMES[kind["type"]]


def written(text: str) -> str:
    """Return the page with the cells that follow from `Settings`."""
    made = cells()

    def row(found: re.Match[str]) -> str:
        default, values = made[found["name"]]
        return f"| `{found['name']}` | {default} | {values} | {found['meaning']} |"

    return ROW.sub(row, text)


def main() -> int:
    """Write the cells into the page, and name the settings that have no row."""
    text = PAGE.read_text()
    PAGE.write_text(written(text))
    missing = sorted(cells().keys() - {found["name"] for found in ROW.finditer(text)})
    for name in missing:
        print(f"{PAGE.name} has no row for {name}. Add: | `{name}` | ? | ? | what it sets |")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
