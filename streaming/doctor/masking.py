"""The removal of secrets from a text that a bug report may contain.

The known secrets are those of the settings. Lines of logs and errors of others may contain more of them: a password in
an address, a value behind a name such as `password`, a token, or a private key.
"""

import re
from collections.abc import Iterable

MASKED = "********"

_NAME = r"secret|password|passwd|passphrase|(?<!fencing_)token|credential|(?:access|private|keystore)[._-]?key"

_PART = r"[\w.-]{0,80}"
"""The rest of a name. Without a bound, a long text would take a time that grows with its square."""

_BLANKS = re.compile(r"(\s+)")

_PATTERNS: tuple[tuple[re.Pattern[str], str], ...] = (
    # what may stand in a text                                        what stands there afterwards
    (re.compile(r"-----BEGIN .*?(?:-----END [^-]*-----|\Z)", re.DOTALL), MASKED),
    (re.compile(r"(?<=://)[^/@\s]+(?=@)"), MASKED),
    (re.compile(rf"(?i)(jaas{_PART}\W{{1,3}}).*"), rf"\1{MASKED}"),
    (re.compile(rf"(?i)((?:{_NAME}){_PART}[\"']?\s*[=:]\s*)(?:\"[^\"]*\"?|'[^']*'?|[^\s,;&]+)"), rf"\1{MASKED}"),
    (re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/=-]{8,}"), rf"\1 {MASKED}"),
)


class Mask:
    """Removes secrets from texts.

    Args:
        secrets: The secrets that are known.
    """

    def __init__(self, secrets: Iterable[str]) -> None:
        self._words = frozenset(word for secret in secrets for word in secret.split())

    def masked(self, text: str) -> str:
        """Return a text without its secrets."""
        for pattern, replacement in _PATTERNS:
            text = pattern.sub(replacement, text)
        return "".join(MASKED if self._is_known(word) else word for word in _BLANKS.split(text))

    def _is_known(self, word: str) -> bool:
        """Return whether a word contains a word of a secret. The rest of it is masked too: it shows what is missing."""
        return any(known in word for known in self._words)
