"""Run the tests with the newest or the lowest packages that the ranges of pyproject.toml allow, on each Python.

python -m tests.versions newest|lowest [--python 3.13 ...] [--quick] [--tally docs/tallies/versions.json]

`make test` runs what constraints.txt pins, on one Python; users install what the ranges allow. For each Python of this
machine that the project supports, this makes an environment with uv, installs the product at one end of every range,
then the packages of the tests beside it, and runs all tests. Environments are made anew each time, in build/versions.
"""

import argparse
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

from tests import tally

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "build" / "versions"
CORES = os.cpu_count() or 1
QUICK = ("tests/coordinator", "tests/deploy", "tests/docs", "tests/streaming")
PARTS: dict[str, tuple[str, ...]] = {
    "quick": ("--numprocesses", str(CORES), "--dist", "worksteal", *QUICK),
    "real": (
        *("--numprocesses", str(CORES + 1), "--dist", "loadfile", "--no-loadscope-reorder"),
        *(f"--ignore={folder}" for folder in QUICK),
    ),
}
"""The arguments of pytest for the tests without a broker, and for those with one, as `make test` has them."""

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
RESOLUTIONS = {"newest": "highest", "lowest": "lowest-direct"}
TOLD = ("confluent-kafka", "kafka-python", "msgspec", "pandas", "pyarrow", "pydantic", "pyspark", "starlette", "typer")
"""The packages whose versions a tally has."""


def main() -> int:
    """Run the tests in each environment; return 1 if they failed in one of them."""
    parser = argparse.ArgumentParser(prog="python -m tests.versions", description=__doc__.partition("\n")[0])
    parser.add_argument("end", choices=RESOLUTIONS, help="the end of every range")
    parser.add_argument("--python", nargs="+", metavar="VERSION", help="some versions of Python; by default all found")
    parser.add_argument("--quick", action="store_true", help="only the tests without a broker and a query")
    parser.add_argument("--tally", type=Path, help="add the runs to this file of docs/tallies")
    options = parser.parse_args()
    is_red = False
    for version in options.python or found_pythons():
        python = made(version, options.end)
        parts = [run(python, *PARTS[part]) for part in (["quick"] if options.quick else PARTS)]
        counts = {word: sum(part.get(word, 0) for part in parts) for word in ("passed", "failed", "error", "skipped")}
        is_red |= bool(counts["failed"] or counts["error"] or not counts["passed"])
        about = {"end": options.end, "python": version, "part": "quick" if options.quick else "all", **counts}
        print(about, flush=True)
        if options.tally:
            tally.add(options.tally, {**about, "packages": installed(python)}, {f"tests, {options.end}": counts})
    return int(is_red)


def supported() -> list[str]:
    """Return the versions of Python that the project names as supported, oldest first."""
    found = [re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", each) for each in PROJECT["classifiers"]]
    return [match[1] for match in found if match]


def found_pythons() -> list[str]:
    """Return the supported versions that this machine has."""
    finding = {version: _uv("python", "find", "--no-python-downloads", version, check=False) for version in supported()}
    return [version for version, done in finding.items() if done.returncode == 0]


def made(version: str, end: str) -> Path:
    """Make an environment with the product at one end of its ranges, and return its Python program.

    The packages of the tests are installed afterwards, and must accept what is there.
    """
    folder = FOLDER / f"{end}-{version}"
    python = folder / "bin" / "python"
    _uv("venv", "--clear", "--seed", "--quiet", "--no-python-downloads", "--python", version, str(folder))
    install = ("pip", "install", "--quiet", "--python", str(python))
    _uv(*install, "--resolution", RESOLUTIONS[end], "--editable", f"{ROOT}[all]")
    (kept := folder / "kept.txt").write_text(_uv("pip", "freeze", "--exclude-editable", "--python", str(python)).stdout)
    _uv(*install, "--constraint", str(kept), *PROJECT["optional-dependencies"]["dev"])
    return python


def installed(python: Path) -> dict[str, str]:
    """Return the versions of the packages in `TOLD`."""
    lines = _uv("pip", "freeze", "--python", str(python)).stdout.splitlines()
    found = dict(line.split("==") for line in lines if "==" in line)
    return {name: found[name] for name in TOLD}


def run(python: Path, *arguments: str) -> dict[str, int]:
    """Run tests, and return how many had which outcome."""
    command = [str(python), "-m", "pytest", "-m", "not nightly", *arguments]
    path = f"{python.parent}{os.pathsep}{os.environ['PATH']}"
    with subprocess.Popen(
        command, cwd=ROOT, env={**os.environ, "PATH": path}, stdout=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None
        last = ""
        for line in running.stdout:
            print(line, end="", flush=True)
            last = line
    return {word: int(number) for number, word in re.findall(r"(\d+) (passed|failed|error|skipped)", last)}


def _uv(*arguments: str, check: bool = True) -> "subprocess.CompletedProcess[str]":
    done: Any = subprocess.run([sys.executable, "-m", "uv", *arguments], capture_output=True, text=True, check=False)
    if check and done.returncode:
        sys.exit(f"versions: uv {' '.join(arguments)}: {done.stderr.strip()}")
    return done  # type: ignore[no-any-return]


if __name__ == "__main__":
    sys.exit(main())
