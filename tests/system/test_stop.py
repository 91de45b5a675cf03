"""`coordinator stop`: a stop from outside is graceful, and is for the drivers that run when it is sent."""

from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from streaming.cli.main import app
from streaming.client.transport import Transport
from streaming.config.settings import Settings
from streaming.errors import Exit, NoAnswer, RequestRefused, UserError
from tests.system.asking import Asker
from tests.system.conftest import Service, batches
from tests.system.test_stand_by import active_and_standing
from tests.system.waiting import HANG_S, wait_until

pytestmark = pytest.mark.long

Run = Callable[..., Service]
KEY = "k3y-" * 10


def stop(settings: Settings, *flags: str, timeout_s: int = 120) -> UserError | None:
    """Run the command, and return its error."""
    where = ["-b", settings.bootstrap_servers, "--topic-prefix", settings.topic_prefix]
    result = CliRunner().invoke(app, ["stop", "--timeout", str(timeout_s), *where, *flags])
    if result.exception is not None and not isinstance(result.exception, UserError):
        raise result.exception
    return result.exception


def test_next_start_repeats_no_batch_and_an_old_request_stops_nothing(run_service: Run) -> None:
    service = run_service("stopped")
    service.await_ready()
    settings = service.settings
    with Transport(settings.kafka_client_arguments(), settings.topic_prefix) as transport:
        asker = Asker(transport, "orders")
        member_id, generation = asker.alone()
        asker.commit(generation, member_id, 5)
        assert stop(settings) is None
        assert service.process.wait(HANG_S) == Exit.DONE, service.log
        assert "Stopped by User:ANONYMOUS with `coordinator stop`." in service.log
        assert batches(service.checkpoint, "offsets") == batches(service.checkpoint, "commits")

        nobody = stop(settings, timeout_s=3)
        assert isinstance(nobody, NoAnswer)
        assert str(nobody).startswith(
            "No response came on stopped.replies within 3 s. Check that the coordinator that reads stopped.requests is"
            " running. No coordinator has stopped. "
        )

        service = run_service("stopped")
        service.await_ready()
        asker.commit(generation, member_id, 6)
        assert asker.fetch() == {("t", 0): 6}
        wait_until(lambda: "was for an earlier driver, and stops nothing" in service.log, account=lambda: service.log)
        assert service.process.poll() is None
    assert stop(settings) is None
    assert service.process.wait(HANG_S) == Exit.DONE, service.log


@pytest.mark.nightly
def test_stop_ends_the_drivers_that_stand_by_too(run_service: Run) -> None:
    active, other = active_and_standing(run_service, "stopped-together")
    assert stop(active.settings) is None
    assert active.process.wait(HANG_S) == Exit.DONE, active.log
    assert other.process.wait(HANG_S) == Exit.DONE, other.log
    assert "was stopped by `coordinator stop`, and this one ends too" in other.log
    again = run_service("stopped-together", stand_by=True)
    again.await_ready()
    assert again.stop() == Exit.DONE


def test_stop_without_the_right_is_refused(run_service: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key = tmp_path / "key"
    key.write_text(KEY)
    rules = {"access": "rules", "super_users": ("User:root",), "access_key_file": str(key)}
    service = run_service("stopped-by-right", **rules)
    service.await_ready()
    unsigned = stop(service.settings)
    assert isinstance(unsigned, RequestRefused)
    assert "does not allow User:ANONYMOUS" in str(unsigned)
    monkeypatch.setenv("COORDINATOR_ACCESS", "rules")
    monkeypatch.setenv("COORDINATOR_ACCESS_KEY_FILE", str(key))
    monkeypatch.setenv("COORDINATOR_PRINCIPAL", "User:ana")
    stranger = stop(service.settings)
    assert isinstance(stranger, RequestRefused)
    assert "does not allow User:ana" in str(stranger)
    assert service.process.poll() is None
    monkeypatch.setenv("COORDINATOR_PRINCIPAL", "User:root")
    assert stop(service.settings) is None
    assert service.process.wait(HANG_S) == Exit.DONE, service.log
    assert "Stopped by User:root" in service.log
