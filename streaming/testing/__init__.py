"""A coordinator in memory, for tests of code that uses the client. No broker, no query, no thread, no real time."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streaming.testing.coordinator import InMemoryCoordinator
    from streaming.testing.transport import NotSettled

__all__ = ["InMemoryCoordinator", "NotSettled"]

_MODULES = {"InMemoryCoordinator": "coordinator", "NotSettled": "transport"}


def __getattr__(name: str) -> Any:
    """Import a class when it is first used: pytest imports this package at each start, for its plugin."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
