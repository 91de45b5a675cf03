"""The core is pure: it can be imported, and can work, without the libraries of the outer layers (design.md 15)."""

import subprocess
import sys
from pathlib import Path

from tests.system.waiting import HANG_S

ROOT = Path(__file__).parents[2]

ALONE = """
import sys

class Nothing:
    '''Lets nothing be imported but the core, msgspec and the standard library.'''

    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top not in {"coordinator", "msgspec"} and top not in sys.stdlib_module_names:
            raise ModuleNotFoundError(f"the core imports {name}", name=name)
        if top in {"socket", "threading", "logging", "random", "secrets", "asyncio", "subprocess"} and is_ours():
            raise ModuleNotFoundError(f"the core imports {name}", name=name)
        return None


def is_ours():
    frame = sys._getframe(2)
    while frame and "importlib" in frame.f_code.co_filename:
        frame = frame.f_back
    return frame is not None and "/coordinator/" in frame.f_code.co_filename


for name in [n for n in sys.modules if n.partition(".")[0] in {"random", "logging", "socket", "threading"}]:
    del sys.modules[name]
sys.meta_path.insert(0, Nothing())
import importlib, pkgutil
import coordinator
for module in pkgutil.walk_packages(coordinator.__path__, "coordinator."):
    importlib.import_module(module.name)

from coordinator.base.config import Config
from coordinator.messages.requests import JoinGroup, Protocol, Received
from coordinator.shard.shard import Shard
join = JoinGroup(request_id="1", reply_to="i", group_id="g", client_id="c", session_timeout_ms=10_000,
                 rebalance_timeout_ms=10_000, protocol_type="consumer", protocols=(Protocol("range"),))
shard = Shard(0, 1, bytes(16), Config())
print(len(shard.step([Received(0, 0, join)], 0)), len(Shard(0, 1, bytes(16), Config(), shard.to_bytes()).group_ids))
"""


def run_alone(program: str) -> str:
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=HANG_S, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_core_imports_and_works_alone():
    """It works without pyspark, kafka and pydantic, and without sockets, threads, logs or random numbers."""
    assert run_alone(ALONE).split() == ["2", "1"]


def test_the_hash_seed_changes_no_output():
    """I16: no code iterates over a set."""
    program = "from tests.coordinator.test_imports import conversation; print(conversation())"
    seeds = ("0", "1", "4242")
    told = {
        subprocess.run(
            [sys.executable, "-c", program],
            cwd=ROOT,
            env={"PYTHONHASHSEED": seed, "PATH": ""},
            capture_output=True,
            text=True,
            timeout=HANG_S,
            check=True,
        ).stdout
        for seed in seeds
    }
    assert len(told) == 1


def conversation() -> str:
    """Return the outputs of a conversation that uses every unordered collection."""
    from tests.coordinator.scenario import Scenario

    s = Scenario(delay_ms=3_000)
    protocols = ("roundrobin", "range", "sticky", "cooperative-sticky")
    for n in range(8):
        s.join(f"c{n}", protocols=protocols[n % 4 :] + protocols[: n % 4], topics=[f"t{n}", f"u{7 - n}"])
    s.until(9_000).sync("c0", plan={f"c{n}": {f"t{n}": [2, 1], f"u{n}": [0]} for n in range(8)})
    s.leave("c3", "c5").until(60_000)
    return repr(s.outputs) + s.shard.to_bytes().hex()
