"""The extras of the distribution, whose packages the base installation does not have.

A command of an extra calls `require` before it imports a module that needs such a package.
"""

from importlib.util import find_spec

from streaming.errors import Exit, UserError

EXTRAS: dict[str, tuple[str, ...]] = {
    # extra         the import packages that it installs
    "coordinator": ("pyspark", "pandas", "pyarrow", "pybase64", "prometheus_client", "xxhash"),
    "gateway":     ("prometheus_client",),
    "page":        ("starlette", "uvicorn", "sse_starlette", "prometheus_client"),
}  # fmt: skip
ALL = "all"


class ExtraMissing(UserError):
    """The command needs an extra that is not installed."""

    exit_code = Exit.NEEDS_A_PERSON


def require(extra: str) -> None:
    """Check that the packages of an extra are installed, without importing them.

    Args:
        extra: A name of `EXTRAS`, or `ALL`.

    Raises:
        ExtraMissing: A package of the extra is missing; names the command that installs the extra.
    """
    needed = {package for name, packages in EXTRAS.items() if extra in (name, ALL) for package in packages}
    missing = sorted(package for package in needed if find_spec(package) is None)
    if missing:
        raise ExtraMissing(
            f"This command needs {', '.join(missing)}, and the installation does not have"
            f" {'it' if len(missing) == 1 else 'them'}: run pip install 'groupcoord[{extra}]'."
        )
