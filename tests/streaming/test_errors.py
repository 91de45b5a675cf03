"""Tests of the tree in `streaming.errors`: it has every error that a user can correct, with its module."""

import ast
import importlib
import pkgutil
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import streaming
from streaming import errors
from streaming.errors import UserError

ROOT = Path(__file__).parents[2]
STARTS_A_PROGRAM = {"streaming.__main__"}


def import_all() -> None:
    for module in pkgutil.walk_packages(streaming.__path__, "streaming."):
        if module.name not in STARTS_A_PROGRAM:
            importlib.import_module(module.name)


def defined_errors() -> dict[str, list[type[UserError]]]:
    """Return the subclasses of `UserError` by the module that defines them, `streaming.errors` first."""
    found, classes = defaultdict[str, list[type[UserError]]](list), [UserError]
    while classes:
        classes = [sub for each in classes for sub in each.__subclasses__() if sub.__module__.startswith("streaming.")]
        for each in classes:
            found[each.__module__].append(each)
    return {name: found[name] for name in sorted(found, key=lambda name: (name != errors.__name__, name))}


def tree() -> str:
    """Return the tree in the form of the docstring of `streaming.errors`."""
    return "\n".join(["    UserError", *branches()])


def branches() -> Iterator[str]:
    defined = defined_errors()
    width = max(len(each.__name__) for classes in defined.values() for each in classes) + 2
    last = list(defined.values())[-1][-1]
    for name, classes in defined.items():
        yield f"    │ {name}"
        for each in classes:
            assert each.__doc__, f"{each} has no docstring"
            base = each.__base__ if each.__base__ is not UserError else None
            line = f"{each.__name__:{width}}{each.__doc__.splitlines()[0].removesuffix('.')}"
            yield f"    {'└──' if each is last else '├──'} {line}{f' (a {base.__name__})' if base else ''}"


def raised_in() -> dict[str, set[str]]:
    """Return the modules whose `raise` statements name a class, by the name of the class."""
    modules = defaultdict[str, set[str]](set)
    for file in (ROOT / "streaming").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Raise) and node.exc is not None:
                for name in ast.walk(node.exc):
                    if isinstance(name, ast.Name):
                        modules[name.id].add(str(file.relative_to(ROOT)))
    return modules


def test_the_tree_has_every_user_error():
    import_all()
    assert tree() in (errors.__doc__ or ""), f"streaming/errors.py has to draw this tree:\n\n{tree()}"


def test_an_error_that_several_modules_raise_is_defined_in_errors():
    import_all()
    modules = raised_in()
    elsewhere = {
        each.__name__ for name, each_of in defined_errors().items() if name != errors.__name__ for each in each_of
    }
    assert {name: found for name in elsewhere if len(found := modules[name]) > 1} == {}
