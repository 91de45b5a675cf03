"""The settings that are not the defaults."""

from collections.abc import Iterator

from pydantic import SecretStr

from streaming.doctor.case import Case, Finding, ok
from streaming.doctor.masking import MASKED

_LAYERS = ("sasl_", "ssl_", "gateway_ssl_")
_SHOWN = frozenset({"sasl_mechanism", "ssl_check_hostname"})
"""The only settings of users and certificates whose values are shown. For the others it is enough that they are set."""


def check(case: Case) -> Iterator[Finding]:
    """Yield each setting that is not the default. A password, a key or a user is not shown."""
    changed = [
        f"{name} = {_shown(name, value)}"
        for name, field in type(case.settings).model_fields.items()
        if (value := getattr(case.settings, name)) != field.default
    ]
    if not changed:
        yield ok("All settings have their defaults.")
    for line in changed:
        yield ok(line)


def _shown(name: str, value: object) -> str:
    is_secret = isinstance(value, SecretStr) or (name.startswith(_LAYERS) and name not in _SHOWN)
    return MASKED if is_secret else str(value)
