"""Policies as a TOML file: `coordinator policy set` reads it, and `coordinator policy show` writes it.

The keys and their bounds are those of the types of `coordinator.base.policies`. Only a freeze has other forms: its
end is a date and a time, and a window is a text such as `fri 16:00 - mon 06:00`.
"""

import json
import re
import tomllib
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import msgspec
from msgspec import inspect

from coordinator.base.limits import FREEZE_MS_MAX, POLICIES_BYTES_MAX
from coordinator.base.policies import DAY_MINUTES, Entries, Freeze, Policies, Policy, Problem, Window, problems, size_of
from streaming.administration.toml_lines import KeyPath, line_of, lines_of
from streaming.errors import Exit, UserError
from streaming.moments import EPOCH

FILE_BYTES_MAX = 256 * 2**10
"""The size of a file. It is four times that of all policies, so there is room for comments."""

SHOWN_CHARS_MAX = 60
"""The length of a wrong value in an error."""

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_MOMENT = r"(mon|tue|wed|thu|fri|sat|sun) +([01]\d|2[0-3]):([0-5]\d)"
_WINDOW = re.compile(rf" *{_MOMENT} *- *{_MOMENT} *", re.ASCII)
WINDOW_EXAMPLE = "fri 16:00 - mon 06:00"
TIME_EXAMPLE = "2026-11-30T06:00:00Z"


class BadPolicies(UserError):
    """The file contains no valid policies."""

    exit_code = Exit.NEEDS_A_PERSON


class _WrongError(Exception):
    """A value of the file is refused."""

    def __init__(self, place: KeyPath, why: str) -> None:
        super().__init__(why)
        self.place, self.why = place, why


class _File(msgspec.Struct, forbid_unknown_fields=True):
    policies: Entries = ()


# -- reading -----------------------------------------------------------------------------------------------------------


def policies_in(file: Path, now_ms: int) -> tuple[Policy, ...]:
    """Read policies from a TOML file with a table `[[policies]]` for each entry.

    Args:
        now_ms: The time at which they are made, Unix milliseconds. The end of a freeze has to be later.

    Raises:
        BadPolicies: A value is wrong; the text names the line, the key and the error.
    """
    try:
        with file.open("rb") as opened:
            content = opened.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise BadPolicies(f"{file} cannot be read ({error.strerror}).") from None
    if len(content) > FILE_BYTES_MAX:
        raise BadPolicies(f"{file} has more than {FILE_BYTES_MAX} bytes. Name groups by their prefixes.")
    try:
        text = content.decode()
        values = tomllib.loads(text)
    except RecursionError:
        raise BadPolicies(f"{file} is nested too deeply.") from None
    except ValueError as error:
        raise BadPolicies(f"{file} is not TOML: {error}.") from None
    try:
        return _policies(values, now_ms)
    except _WrongError as error:
        raise BadPolicies(f"{file}, line {line_of(lines_of(text), error.place)}: {error.why}.") from None


def _policies(values: dict[str, Any], now_ms: int) -> tuple[Policy, ...]:
    """Convert the values of a file.

    Raises:
        _WrongError: A value is refused.
    """
    policies = msgspec.convert(_Reader(now_ms).read(inspect.type_info(_File), values, ()), _File).policies
    made = Policies(now_ms, policies)
    if (problem := next(problems(made), None)) is not None:
        raise _as_in_the_file(problem, values)
    if (size := size_of(made)) > POLICIES_BYTES_MAX:
        raise _WrongError((), f"the policies take {size} bytes, and {POLICIES_BYTES_MAX} are allowed")
    return policies


def _as_in_the_file(problem: Problem, values: dict[str, Any]) -> _WrongError:
    """Return a problem with the names that the file has for its entries, windows and keys."""
    parts = re.findall(r"\w+", problem.field.replace("until_ms", "until"))
    place = tuple(int(part) if part.isdecimal() else part for part in parts)
    entries = values["policies"]
    why = re.sub(r"windows\[(\d+)\]", lambda n: _shown(entries[place[1]]["freeze"]["windows"][int(n[1])]), problem.why)
    why = re.sub(r"policies\[(\d+)\]", lambda n: f"entry {int(n[1]) + 1}", why)
    window = place[-1] if isinstance(place[-1], int) and "windows" in place else None
    name = _name(place) if window is None else _shown(entries[place[1]]["freeze"]["windows"][window])
    return _WrongError(place, f"{name} {why.replace('until_ms', 'until')}")


def _not_as(place: KeyPath, value: Any, wanted: str) -> _WrongError:
    return _WrongError(place, f"{_name(place)} is {_shown(value)}, and has to be {wanted}")


class _Reader:
    """Converts the values of a file to those of a request, and checks them against the types of `base.policies`.

    Args:
        now_ms: The time at which the policies are made.
    """

    def __init__(self, now_ms: int) -> None:
        self._now_ms = now_ms
        self._of_kind: dict[type, Callable[[Any, Any, KeyPath], Any]] = {
            inspect.IntType: _read_int,
            inspect.StrType: _read_text,
            inspect.EnumType: _read_choice,
            inspect.VarTupleType: self._read_list,
            inspect.StructType: self._read_table,
        }

    def read(self, kind: Any, value: Any, place: KeyPath) -> Any:
        """Return the value for a request.

        Raises:
            _WrongError: The value is refused.
        """
        if isinstance(kind, inspect.UnionType):
            kind = next(each for each in kind.types if not isinstance(each, inspect.NoneType))
        return self._of_kind[type(kind)](kind, value, place)

    def _read_list(self, kind: inspect.VarTupleType, value: Any, place: KeyPath) -> list[Any]:
        least, most = kind.min_length or 0, kind.max_length or 0
        if not isinstance(value, list) or len(value) < least:
            raise _not_as(place, value, f"a list of {least} to {most} values")
        if len(value) > most:
            raise _WrongError(
                (*place, most), f"{_name(place)} has {len(value)} entries, and at most {most} are allowed"
            )
        return [self.read(kind.item_type, each, (*place, n)) for n, each in enumerate(value)]

    def _read_table(self, kind: inspect.StructType, value: Any, place: KeyPath) -> dict[str, Any]:
        if kind.cls is Window:
            return _read_window(value, place)
        if not isinstance(value, dict):
            raise _not_as(place, value, "a table")
        fields = {_key(kind, each): each for each in kind.fields}
        for key in value:
            if key not in fields:
                raise _WrongError((*place, key), _unknown(key, list(fields)))
        for key, each in fields.items():
            if each.required and key not in value:
                raise _WrongError(place, f"{key} is missing")
        return {
            fields[key].name: self._read_field(kind, fields[key], each, (*place, key)) for key, each in value.items()
        }

    def _read_field(self, kind: inspect.StructType, field: inspect.Field, value: Any, place: KeyPath) -> Any:
        is_end = (kind.cls, field.name) in _SPELLED
        return self._read_end(value, place) if is_end else self.read(field.type, value, place)

    def _read_end(self, value: Any, place: KeyPath) -> int:
        if not isinstance(value, datetime) or value.tzinfo is None:
            wanted = f"a date and a time with a zone, such as {TIME_EXAMPLE}"
            raise _not_as(place, value, wanted)
        until_ms = (value - EPOCH) // timedelta(milliseconds=1)
        if until_ms <= self._now_ms:
            raise _WrongError(place, f"{_name(place)} is {_shown(value)}, which is in the past")
        if until_ms - self._now_ms > FREEZE_MS_MAX:
            hours = FREEZE_MS_MAX // 3_600_000
            raise _WrongError(place, f"{_name(place)} is {_shown(value)}, which is more than {hours} hours ahead")
        return until_ms


_SPELLED: dict[tuple[type, str], str] = {(Freeze, "until_ms"): "until"}
"""The keys of the file that have another name in a request."""


def _key(kind: inspect.StructType, field: inspect.Field) -> str:
    return _SPELLED.get((kind.cls, field.name), field.name)


def _read_int(kind: inspect.IntType, value: Any, place: KeyPath) -> int:
    if type(value) is not int or not (kind.ge or 0) <= value <= (kind.le or 0):
        wanted = f"a whole number from {kind.ge} to {kind.le}"
        raise _not_as(place, value, wanted)
    return value


def _read_text(kind: inspect.StrType, value: Any, place: KeyPath) -> str:
    if not isinstance(value, str) or not (kind.min_length or 0) <= len(value) <= (kind.max_length or 0):
        wanted = f"a text of {kind.min_length} to {kind.max_length} characters"
        raise _not_as(place, value, wanted)
    return value


def _read_choice(kind: inspect.EnumType, value: Any, place: KeyPath) -> str:
    choices = [str(each.value) for each in kind.cls]
    if not isinstance(value, str) or value not in choices:
        raise _not_as(place, value, f"{' or '.join(choices)}")
    return value


def _read_window(value: Any, place: KeyPath) -> dict[str, Any]:
    found = _WINDOW.fullmatch(value.lower()) if isinstance(value, str) else None
    if found is None:
        wanted = f'like "{WINDOW_EXAMPLE}", in UTC'
        raise _not_as(place, value, wanted)
    from_minute, until_minute = _minute(*found.groups()[:3]), _minute(*found.groups()[3:])
    return {"from_minute": from_minute, "until_minute": until_minute}


def _minute(day: str, hours: str, minutes: str) -> int:
    return DAYS.index(day) * DAY_MINUTES + int(hours) * 60 + int(minutes)


def _unknown(key: str, known: list[str]) -> str:
    near = get_close_matches(key, known, 1)
    helps = f"{near[0]} is the nearest known key" if near else f"the known keys are {', '.join(known)}"
    return f"unknown key {_shortened(key)}; {helps}"


def _name(place: KeyPath) -> str:
    """Return the last key of a place, with the index behind it."""
    if not isinstance(place[-1], int):
        return str(place[-1])
    return f"entry {place[-1] + 1} of {place[-2]}"


def _shown(value: Any) -> str:
    """Return a wrong value as text of bounded length."""
    if isinstance(value, datetime):
        return value.isoformat()
    return _shortened(json.dumps(value, ensure_ascii=False, default=str))


def _shortened(text: str) -> str:
    return text if len(text) <= SHOWN_CHARS_MAX else f"{text[:SHOWN_CHARS_MAX]}..."


# -- writing -----------------------------------------------------------------------------------------------------------


def written(policies: Iterable[Policy]) -> str:
    """Return policies in the form that `policies_in` reads. Values that are as suggested are omitted."""
    return "\n".join(f"[[policies]]\n{_entry(each)}" for each in policies)


def _entry(policy: Policy) -> str:
    values = msgspec.to_builtins(policy)
    if policy.freeze is not None:
        values["freeze"] = _freeze(policy.freeze)
    return "".join(f"{key} = {_value(value)}\n" for key, value in values.items())


def _freeze(freeze: Freeze) -> dict[str, Any]:
    values: dict[str, Any] = msgspec.to_builtins(freeze)
    if freeze.until_ms is not None:
        values = {"until": EPOCH + timedelta(milliseconds=values.pop("until_ms")), **values}
    if freeze.windows:
        values["windows"] = [window_text(each) for each in freeze.windows]
    return values


def window_text(window: Window) -> str:
    """Return a window as the file has it."""
    return f"{_moment_text(window.from_minute)} - {_moment_text(window.until_minute)}"


def _moment_text(minute: int) -> str:
    hours, minutes = divmod(minute % DAY_MINUTES, 60)
    return f"{DAYS[minute // DAY_MINUTES]} {hours:02}:{minutes:02}"


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_value(each)}" for key, each in value.items()) + " }" if value else "{}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, datetime):
        timespec = "milliseconds" if value.microsecond else "seconds"
        return value.astimezone(UTC).replace(tzinfo=None).isoformat(timespec=timespec) + "Z"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
