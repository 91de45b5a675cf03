"""The start of the commands `groupcoord` and `coordinator`, and the main file of a job for spark-submit.

The distribution mosaicml-streaming has an import package `streaming` as well, and Databricks' runtimes for machine
learning bring it. Then Python may find that package first. So this module is outside of `streaming`, and checks which
package Python finds before it imports anything from it.
"""

import importlib.util
import sys

NEEDS_A_PERSON = 78  # as in streaming.errors.Exit, which cannot be imported here
MARK = "groupcoord"  # in the text of our package's `__init__.py`


def main() -> None:
    """Run the command line. Exit with a sentence if another distribution's package `streaming` shadows ours."""
    if error := shadowed():
        sys.stderr.write(f"{error}\n")
        sys.exit(NEEDS_A_PERSON)
    from streaming.cli.main import main as run

    run()


def shadowed() -> str | None:
    """Return a sentence if `import streaming` would import another distribution's package; None if it imports ours."""
    found = importlib.util.find_spec("streaming")
    if found is None:
        return "The package streaming of groupcoord was not found: install groupcoord again in this environment."
    read = getattr(found.loader, "get_source", None)
    if read and MARK in (read("streaming") or ""):
        return None
    where = found.origin or ", ".join(found.submodule_search_locations or ())
    return (
        f"Another package named streaming, at {where}, shadows groupcoord's:"
        f" install groupcoord in a virtual environment of its own, or uninstall the other distribution"
        f" (mosaicml-streaming has a package of this name) and install groupcoord again."
    )


if __name__ == "__main__":
    main()
