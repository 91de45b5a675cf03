"""The wheel, installed with each extra in an environment of its own, does what the installation page promises."""

import urllib.request
from pathlib import Path
from zipfile import ZipFile

import pytest
from packaging.metadata import Metadata

from streaming import __version__
from streaming.cli.lib.extras import EXTRAS
from streaming.errors import Exit
from streaming.query.coordinator import Coordinator
from tests.deploy.reading import ROOT
from tests.docs.test_examples import EXAMPLES
from tests.system.installed import Environment, build
from tests.system.test_examples import docstring_output, masked
from tests.system.waiting import HANG_S

pytestmark = pytest.mark.long

BASE_BYTES_MAX = 60_000_000
LOADED_BY_CLIENT = {"coordinator", "kafka", "msgspec", "re2", "streaming", "typing_extensions"}
"""All packages that the client loads, but for those of Python. Each further one would make its start slower."""

LOADED = """
import sys
before = set(sys.modules)
import streaming.client
print(*sorted({name.partition(".")[0] for name in set(sys.modules) - before} - sys.stdlib_module_names))
"""
EXAMPLES_AND_ADDRESSES = {
    "sharing_cameras.py": "bootstrap_servers",
    "scheduler.py": "bootstrap_servers",
    "asyncio_worker.py": "bootstrap_servers",
    "restore_offsets.py": "bootstrap_servers",
    "rolling_deploy.py": "bootstrap_servers",
    "gateway/librdkafka_consumer.py": "gateway",
}
"""The examples that one command starts, and the address that each of them gets."""

MEMBER = """
import sys
from streaming.client import GroupMember
servers, prefix = sys.argv[1:]
with GroupMember(["gate", "yard"], group_id="installed", bootstrap_servers=servers, topic_prefix=prefix) as member:
    print(*sorted(member.wait_for_assignment()))
"""


def fetched(url: str) -> str:
    with urllib.request.urlopen(url, timeout=HANG_S) as answer:
        return str(answer.read().decode())


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def base(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return Environment(tmp_path_factory.mktemp("base"), wheel)


def test_the_wheel_is_complete_and_describes_itself(wheel: Path) -> None:
    with ZipFile(wheel) as content:
        names = set(content.namelist())
        text = content.read(f"groupcoord-{__version__}.dist-info/METADATA")
    metadata = Metadata.from_email(text, validate=True)
    assert (metadata.name, str(metadata.version)) == ("groupcoord", __version__)
    assert metadata.description_content_type == "text/markdown"
    assert set(metadata.provides_extra or ()) >= {*EXTRAS, "all"}
    packages = {
        str(file.relative_to(ROOT))
        for package in ("coordinator", "streaming")
        for file in (ROOT / package).rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    assert {name for name in names if ".dist-info/" not in name} == packages | {"groupcoord.py"}
    assert {"coordinator/py.typed", "streaming/py.typed"} <= names


def test_the_base_is_small_and_its_client_loads_little(base: Environment) -> None:
    assert base.size_bytes < BASE_BYTES_MAX
    assert set(base.python(LOADED).split()) <= LOADED_BY_CLIENT


def test_the_base_joins_groups_and_reads_topics(base: Environment, coordinator: Coordinator) -> None:
    settings = coordinator.settings
    assert base.python(MEMBER, settings.bootstrap_servers, settings.topic_prefix) == "gate yard\n"
    where = ("-b", settings.bootstrap_servers, "--topic-prefix", settings.topic_prefix)
    listed = base.command("groups", "list", *where)
    assert (listed.returncode, "installed" in listed.stdout) == (0, True), listed
    why = base.command("groups", "timeline", "installed", *where)
    assert (why.returncode, "left" in why.stdout) == (0, True), why
    verified = base.command("verify", "installed", *where)
    assert verified.returncode == 0, verified


def test_the_base_examines_itself_and_the_coordinator(base: Environment, coordinator: Coordinator) -> None:
    settings = coordinator.settings
    done = base.command("doctor", "-b", settings.bootstrap_servers, "--topic-prefix", settings.topic_prefix)
    assert (done.returncode, done.stderr) == (0, ""), done
    for extra in EXTRAS:
        assert f"WARNING  installation  Of the extra {extra}, these packages are not installed: " in done.stdout
    assert f"{settings.requests_topic} is as needed: " in done.stdout


def test_the_base_names_the_extra_of_a_command(base: Environment) -> None:
    done = base.command("up")
    assert done.returncode == Exit.NEEDS_A_PERSON
    assert "pip install 'groupcoord[all]'" in done.stderr


@pytest.mark.nightly
def test_the_extra_gateway_serves_clients(wheel: Path, coordinator: Coordinator, tmp_path: Path) -> None:
    settings = coordinator.settings
    where = ("-b", settings.bootstrap_servers, "--topic-prefix", settings.topic_prefix)
    with Environment(tmp_path, wheel, "gateway").serving("gateway", *where, "--port", "0") as ready:
        assert ready["gateway"]


@pytest.mark.nightly
def test_the_extra_page_serves_the_page(wheel: Path, coordinator: Coordinator, tmp_path: Path) -> None:
    settings = coordinator.settings
    where = ("-b", settings.bootstrap_servers, "--topic-prefix", settings.topic_prefix)
    with Environment(tmp_path, wheel, "page").serving("dashboard", *where, "--port", "0") as ready:
        assert "<html" in fetched(ready["dashboard"])


@pytest.mark.nightly
def test_the_extra_coordinator_serves_groups(wheel: Path, coordinator: Coordinator, tmp_path: Path) -> None:
    environment = Environment(tmp_path, wheel, "coordinator")
    servers = coordinator.settings.bootstrap_servers
    where = ("-b", servers, "--topic-prefix", "installed")
    with environment.serving("run", *where, "--replication-factor", "1", "--checkpoint", str(tmp_path / "checkpoint")):
        assert environment.python(MEMBER, servers, "installed") == "gate yard\n"
    exported = environment.command("export", *where, "--output", str(tmp_path / "history"))
    assert exported.returncode == 0, exported.stderr
    assert {file.name for file in (tmp_path / "history").iterdir()} == {
        "events.parquet", "groups.parquet", "offsets.parquet"
    }  # fmt: skip


@pytest.mark.nightly
def test_all_extras_run_everything_in_an_empty_folder(wheel: Path, tmp_path: Path) -> None:
    environment = Environment(tmp_path, wheel, "all")
    with environment.serving("up", "--no-demo") as ready:
        assert "<html" in fetched(ready["dashboard"])
        assert environment.python(MEMBER, ready["bootstrap_servers"], "coordinator") == "gate yard\n"
        for example, servers in EXAMPLES_AND_ADDRESSES.items():
            printed = environment.script(EXAMPLES / example, "--bootstrap-servers", ready[servers])
            assert masked(printed) == masked(docstring_output(EXAMPLES / example)), example
    assert list(environment.empty.iterdir()) == []
