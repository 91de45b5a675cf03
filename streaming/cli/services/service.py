"""Commands that run until a signal stops them: the query, the broker, a gateway, the dashboard, or all of them
together.

A function imports the parts that it runs, since an installation may have only the packages of one of them.
"""

import contextlib
import gc
import json
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterator
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Self

from rich.console import Console

from streaming import logs
from streaming.config.principals import OPEN_SAID
from streaming.config.settings import Settings
from streaming.config.values import is_loopback
from streaming.embedded import Broker, BrokerWatch, Cluster
from streaming.errors import BrokerFailed, Exit, UserError

if TYPE_CHECKING:
    from streaming.dashboard import Dashboard
    from streaming.gateway import Gateway
    from streaming.observe.observer import Observer
    from streaming.query.coordinator import Coordinator

Tell = Callable[[str], None]

GARBAGE_AFTER = 500_000
"""The number of new objects after which a gateway collects garbage. Its requests in flight are about ten objects each,
and almost no reference cycles. With 20,000 in flight and Python's default of 700, garbage collection takes most of a
gateway's time, and with 50,000 a quarter. Closed connections are cycles: their objects take some 45 MB before they are
collected."""

REPLICAS_MAX = 3
"""The most replicas of a topic on embedded brokers: as many as in production, also if there are more brokers."""

SHARDS_ON_ONE_MACHINE = 4
"""The number of shards of new topics if broker, query and members run on one machine."""

ANYBODY_SEES = (
    "It listens on {host} without authentication: each client that reaches it sees all groups, members and offsets."
)

START_END_WAIT_S = 15.0
"""How long a start may go on after a signal. It may wait for brokers for longer, and a service ends within 30 s."""

STOP_END_WAIT_S = 28.0
"""How long a stop of a query may go on after a signal. All its waits have limits and take less, but a call of Spark may
not return while no broker answers."""

DEMO_END_WAIT_S = 10.0

CHECKS_AT = "The health checks are at {url}."


def run_query(settings: Settings, *, ready_file: Path | None, tell: Tell) -> None:
    """Run the query until a signal ends it.

    Raises:
        UserError: The query could not start, or it failed.
    """
    with _running(settings, tell) as coordinator:
        if not coordinator.is_serving:
            return  # stopped while it stood by
        _announce(coordinator.ask_to_stop, ready_file, settings, ends_in_time=True)
        tell(f"Serving groups over {settings.requests_topic} at {settings.bootstrap_servers}. Ctrl-C stops.")
        if settings.access == "open":
            tell(OPEN_SAID.format(topic=settings.requests_topic))
        coordinator.wait()
        tell("Stopping after the current batch.")


def run_observer(settings: Settings, *, with_dashboard: bool = False, ready_file: Path | None, tell: Tell) -> None:
    """Run the observer until a signal ends it.

    Args:
        settings: The observer's; see `Settings.observing`.
        with_dashboard: Whether its groups are shown in a browser as well.

    Raises:
        UserError: The query or the dashboard could not start, or the query failed.
    """
    from streaming.observe.observer import Observer

    observer, started = Observer(settings, tell), threading.Event()
    _stop_on_signals(observer.ask_to_stop, started)
    with contextlib.ExitStack() as stack:
        stack.enter_context(_observing(observer, started, tell))
        dashboard = None
        if with_dashboard:
            from streaming.dashboard import Dashboard

            dashboard = stack.enter_context(Dashboard(settings, tell))
        _announce(
            observer.ask_to_stop,
            ready_file,
            settings,
            dashboard=dashboard,
            observed=settings,
            is_alone=True,
            ends_in_time=True,
        )
        tell(
            f"Observing the groups of Kafka's own coordinator at {settings.bootstrap_servers}; see them with"
            f" `coordinator groups list --topic-prefix {settings.topic_prefix}`. Ctrl-C stops."
        )
        if dashboard is not None:
            _report_dashboard(settings, dashboard, tell)
        observer.wait()
        tell("Stopping after the current batch.")


@contextlib.contextmanager
def _observing(observer: "Observer", started: threading.Event, tell: Tell) -> Iterator[None]:
    settings = observer.settings
    listener: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()
    if settings.health_port is not None:
        from streaming.health import Listener
        from streaming.observe.health import ObserverHealth

        listener = Listener(settings.health_host, settings.health_port, ObserverHealth(observer))
        tell(CHECKS_AT.format(url=listener.url))
    with listener:
        try:
            try:
                observer.start()
            finally:
                started.set()
            yield
        finally:
            observer.stop()


def run_broker(data: Path | None, port: int | None, *, ready_file: Path | None, tell: Tell) -> None:
    """Run the embedded broker until a signal ends it."""
    stopping = threading.Event()
    with (
        _folder(data) as folder,
        Broker(folder / "broker", port=port, report=tell) as broker,
        BrokerWatch(broker.all, tell, stopping.set) as watched,
    ):
        _announce(stopping.set, ready_file, settings_of(broker))
        tell(f"Kafka runs at {broker.bootstrap_servers}; its log is {broker.log_file}. Ctrl-C stops.")
        while not stopping.wait(1):
            pass
        if not watched.is_any_left:
            raise BrokerFailed("The broker has ended by itself. Start again, with the same --data to go on.")


def run_gateway(settings: Settings, *, ready_file: Path | None, tell: Tell) -> None:
    """Run a gateway until a signal ends it.

    Raises:
        UserError: The gateway could not start.
    """
    from streaming.gateway import Gateway

    stopping = threading.Event()
    gc.collect()
    gc.freeze()  # what was imported stays
    gc.set_threshold(GARBAGE_AFTER)
    with Gateway(settings, tell) as gateway:
        if settings.health_port is not None:
            tell(CHECKS_AT.format(url=gateway.serve_health_at(settings.health_host, settings.health_port)))
        _announce(stopping.set, ready_file, settings, gateway)
        tell("Ctrl-C stops. Members may reconnect here, or to another gateway, within their session timeouts.")
        while not stopping.wait(1):
            pass


def run_dashboard(settings: Settings, *, observe: Collection[str] = (), ready_file: Path | None, tell: Tell) -> None:
    """Serve the dashboard until a signal ends it.

    Args:
        observe: The prefixes to which `coordinator observe` writes, and whose groups are shown as well.

    Raises:
        UserError: The dashboard could not start.
    """
    from streaming.dashboard import Dashboard

    stopping = threading.Event()
    with Dashboard(settings, tell, observe) as dashboard:
        _announce(stopping.set, ready_file, settings, dashboard=dashboard)
        _report_dashboard(settings, dashboard, tell)
        while not stopping.wait(1):
            pass


def run_embedded(
    data: Path | None,
    port: int | None,
    gateway_port: int,
    dashboard_port: int,
    *,
    brokers: int,
    demo: bool,
    observe: bool,
    ready_file: Path | None,
    tell: Tell,
) -> None:
    """Run brokers, topics, query, gateway, dashboard and optionally the demo and the observer until a signal ends
    them.

    Args:
        brokers: The number of brokers. Topics have as many replicas, 3 at most.

    Raises:
        UserError: A part could not start, or it failed. If the last broker ends by itself, the others are stopped.
    """
    from streaming.dashboard import Dashboard
    from streaming.gateway import Gateway

    with _folder(data) as folder, _brokers(folder, brokers, port, tell) as kafka:
        settings = settings_of(
            kafka,
            replication_factor=min(brokers, REPLICAS_MAX),
            checkpoint=str(folder / "checkpoint"),
            observe_checkpoint=str(folder / "observe"),
            gateway_port=gateway_port,
            dashboard_port=dashboard_port,
        )
        settings = with_shards(settings)
        with contextlib.ExitStack() as stack:
            coordinator = stack.enter_context(_running(settings, tell))
            watched = stack.enter_context(BrokerWatch(kafka.all, tell, coordinator.abandon))
            gateway = stack.enter_context(Gateway(settings))
            observing = stack.enter_context(_Observing(settings, coordinator)) if observe else None
            observed = observing.settings if observing else None
            prefixes = [observed.topic_prefix] if observed is not None else []
            dashboard = stack.enter_context(Dashboard(settings, observe=prefixes))
            _announce(partial(_end, coordinator, watched), ready_file, settings, gateway, dashboard, observed)
            _show_addresses(settings, gateway, dashboard, tell, observed)
            with _Demo(settings, coordinator) if demo else contextlib.nullcontext():
                coordinator.wait()
            tell("Stopping.")
        if not watched.is_any_left:
            raise BrokerFailed("No broker was left, so all is stopped. Start again, with the same --data to go on.")


def _brokers(folder: Path, number: int, port: int | None, tell: Tell) -> Broker | Cluster:
    """Return one broker or a cluster, not started yet.

    Raises:
        BrokerFailed: The folder has brokers of another number.
    """
    of_one, of_many = folder / "broker", folder / "cluster"
    if (of_many if number == 1 else of_one).exists():
        raise BrokerFailed(
            f"{folder} belongs to another number of brokers. Start as many as before, or choose another."
        )
    if number == 1:
        return Broker(of_one, port=port, report=tell)
    return Cluster(of_many, number, port=port, report=tell)


def settings_of(kafka: Broker | Cluster, **flags: object) -> Settings:
    """Return settings for embedded brokers without encryption, whatever the environment sets."""
    return Settings.load(
        bootstrap_servers=kafka.bootstrap_servers,
        **{"security_protocol": "PLAINTEXT", "replication_factor": 1, **flags},
    )


def _end(coordinator: "Coordinator", brokers: BrokerWatch) -> None:
    """Stop after the running batch, which needs most of the brokers; at once without them."""
    if brokers.has_majority:
        coordinator.ask_to_stop()
    else:
        coordinator.abandon()


def with_shards(settings: Settings) -> Settings:
    """Return settings with the shards of existing topics, or few for new ones; unchanged if the user has set them.

    A batch that touches all shards costs less if they are few, and one machine has few cores to share them.
    """
    from streaming.kafka import topics

    if "request_partitions" in settings.model_fields_set:
        return settings
    return settings.model_copy(update={"request_partitions": topics.shards(settings) or SHARDS_ON_ONE_MACHINE})


@contextlib.contextmanager
def _running(settings: Settings, tell: Tell) -> Iterator["Coordinator"]:
    from streaming.query.coordinator import Coordinator

    coordinator, started = Coordinator(settings, tell), threading.Event()
    if settings.stand_by:
        # it may stand by for months before its start returns
        _stop_on_signals(coordinator.ask_to_stop, started)
    with _telling_health(coordinator, tell):
        try:
            try:
                coordinator.start()
            finally:
                started.set()
            yield coordinator
        finally:
            coordinator.stop()


@contextlib.contextmanager
def _telling_health(coordinator: "Coordinator", tell: Tell) -> Iterator[None]:
    settings = coordinator.settings
    if settings.health_port is None:
        yield
        return
    from streaming.health import Listener
    from streaming.kafka.broker_monitor import BrokerMonitor
    from streaming.query.health import QueryHealth

    with (
        BrokerMonitor.of(settings, coordinator.tallies) as monitor,
        Listener(settings.health_host, settings.health_port, QueryHealth(coordinator, monitor)) as listener,
    ):
        tell(CHECKS_AT.format(url=listener.url))
        yield


class _Observing:
    """The observer beside the coordinator's query, in the same Java process. If it fails, it stops the query."""

    def __init__(self, settings: Settings, coordinator: "Coordinator") -> None:
        from streaming.observe.observer import Observer

        self.settings = settings.observing()
        self._coordinator = coordinator
        self._observer = Observer(self.settings)
        self._failure: UserError | None = None
        self._thread = threading.Thread(target=self._watch, name="observer")

    def __enter__(self) -> Self:
        from streaming.observe.source import have_source_made

        have_source_made(self.settings)
        try:
            self._observer.start()
        except BaseException:
            self._observer.stop()
            raise
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._coordinator.is_abandoned:
            self._observer.abandon()
        self._observer.stop()
        self._thread.join()
        if self._failure:
            raise self._failure

    def _watch(self) -> None:
        try:
            self._observer.wait()
        except UserError as error:
            self._failure = error
            self._coordinator.ask_to_stop()


class _Demo:
    """The demo, in a thread beside the query. If the demo fails, it stops the query, and the exit raises its error."""

    def __init__(self, settings: Settings, coordinator: "Coordinator") -> None:
        self._settings, self._coordinator = settings, coordinator
        self._over = threading.Event()
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._show, name="demo", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(DEMO_END_WAIT_S)  # its members end with this process, if it still waits for brokers
        if self._failure:
            raise self._failure

    def _show(self) -> None:
        from streaming.demo import run_demo

        try:
            run_demo(self._settings, out=Console(soft_wrap=True), stop=self._over.is_set)
        except Exception as error:
            if not self._over.is_set():  # else it ended while it waited for brokers
                self._failure = error
                self._coordinator.ask_to_stop()


def _show_addresses(
    settings: Settings, gateway: "Gateway", dashboard: "Dashboard", tell: Tell, observed: Settings | None
) -> None:
    prefix = observed.topic_prefix if observed else ""
    of_brokers = (
        f"  groups of the broker's own:      coordinator groups list --topic-prefix {prefix} -b"
        f" {settings.bootstrap_servers}\n"
        f"  groups of your own Kafka:        coordinator observe -b HOST:PORT\n"
    )
    tell(
        f"Ready. Kafka runs at {settings.bootstrap_servers}; requests go to {settings.requests_topic}.\n"
        f"  see the groups in a browser:     {dashboard.url}\n"
        f"  connect any Kafka client:        bootstrap.servers={gateway.bootstrap_servers}\n"
        f"  watch in another terminal:       coordinator watch -b {settings.bootstrap_servers}\n"
        f"  send a request:                  coordinator request describe_group -g demo -b "
        f"{settings.bootstrap_servers}\n"
        f"{of_brokers if observed else ''}"
        f"Ctrl-C stops."
    )


@contextlib.contextmanager
def _folder(data: Path | None) -> Iterator[Path]:
    if data:
        data.mkdir(parents=True, exist_ok=True)
        yield data
        return
    with tempfile.TemporaryDirectory(prefix="coordinator-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def _report_dashboard(settings: Settings, dashboard: "Dashboard", tell: Tell) -> None:
    tell(f"The dashboard is at {dashboard.url}. Ctrl-C stops.")
    if not is_loopback(settings.dashboard_host):
        tell(ANYBODY_SEES.format(host=settings.dashboard_host))


def _announce(
    stop: Callable[[], None],
    ready_file: Path | None,
    settings: Settings,
    gateway: "Gateway | None" = None,
    dashboard: "Dashboard | None" = None,
    observed: Settings | None = None,
    *,
    is_alone: bool = False,
    ends_in_time: bool = False,
) -> None:
    """Stop on signals from now on, and write the ready file.

    The file is written last and atomically: whoever waits for it may read it, or send a signal, as soon as it exists.

    Args:
        observed: The observer's settings, if it runs.
        is_alone: Whether only the observer runs.
        ends_in_time: Whether a stop that lasts for longer than `STOP_END_WAIT_S` is cut short.
    """
    _stop_on_signals(stop, ends_in_time=ends_in_time)
    if ready_file is None:
        return
    ready: dict[str, object] = {"bootstrap_servers": settings.bootstrap_servers, "pid": os.getpid()}
    if not is_alone:
        ready["topics"] = {
            "requests": settings.requests_topic,
            "replies": settings.replies_topic,
            "groups": settings.groups_topic,
            "events": settings.events_topic,
        }
    if gateway:
        ready["gateway"] = gateway.bootstrap_servers
    if dashboard:
        ready["dashboard"] = dashboard.url
    if observed:
        ready["observed"] = {"groups": observed.groups_topic, "events": observed.events_topic}
    beside = ready_file.with_name(f"{ready_file.name}.new")
    beside.write_text(json.dumps(ready) + "\n")
    beside.replace(ready_file)


def _stop_on_signals(
    stop: Callable[[], None], started: threading.Event | None = None, *, ends_in_time: bool = False
) -> None:
    """Call `stop` at each signal that ends a process.

    Args:
        started: Set when the start is over. A start that waits for brokers does not look at `stop`, so the process ends
            without it after `START_END_WAIT_S`.
        ends_in_time: The same argument as that of `_announce`.
    """

    def handler(_signal: int, _frame: FrameType | None) -> None:
        stop()
        if started is not None:
            threading.Thread(target=_end_start, args=(started,), name="end of the start", daemon=True).start()
        if ends_in_time:
            threading.Thread(target=_end_stop, name="end of the stop", daemon=True).start()

    signal.signal(signal.SIGINT, handler)
    signal.signal(signal.SIGTERM, handler)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup ignores it, and a child inherits that
        signal.signal(signal.SIGHUP, handler)


def _end_start(started: threading.Event) -> None:
    if not started.wait(START_END_WAIT_S):
        logs.tell(f"The start goes on {START_END_WAIT_S:g} s after the signal, so the process ends without it.")
        os._exit(Exit.FAILED)


def _end_stop() -> None:
    """End the process, and Spark's Java process, if the stop does not end it before."""
    time.sleep(STOP_END_WAIT_S)
    logs.tell(
        f"The stop goes on {STOP_END_WAIT_S:g} s after the signal, so the process ends without it. The next start"
        " repeats the running batch."
    )
    if (spark := sys.modules.get("pyspark")) is not None:
        java = getattr(spark.SparkContext._gateway, "proc", None)
        if java is not None:
            java.kill()  # else it would end by itself, after its own stop of Spark
    os._exit(Exit.FAILED)
