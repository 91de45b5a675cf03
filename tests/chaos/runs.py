"""The three kinds of runs, each run to its end and judged."""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.chaos.faults import PAUSE_SESSIONS, Chaos
from tests.chaos.killing import MEMBERS, Killer
from tests.chaos.world import STRATEGIES, World
from tests.cluster.standalone import Cluster

Tell = Callable[[str], None]

SESSION_MS = 3_000
PATIENT_MS = 10_000
"""The session timeout while only the coordinator is restarted; it is unavailable for longer than that."""

LONG_MS = 30_000
"""The session timeout of members that must not expire: kafka-python finds a gateway again only after some seconds."""


@dataclass
class Outcome:
    """The result of a run: its figures, and all broken promises."""

    figures: dict[str, Any]
    wrong: list[str]


def chaos(folder: Path, chance: random.Random, seconds: float, tell: Tell) -> Outcome:
    """Cause all kinds of faults for `seconds`."""
    strategy = chance.choice(STRATEGIES)
    with World(folder, members=3, strategy=strategy, session_timeout_ms=SESSION_MS) as world:
        world.await_settled()
        faults = Chaos(world, chance, PAUSE_SESSIONS * SESSION_MS / 1000, tell)
        faults.run(seconds)
        return _end(world, {"strategy": strategy, "faults": dict(faults.done)}, tell)


def restarts(folder: Path, chance: random.Random, times: int, tell: Tell) -> Outcome:
    """Stop or kill the coordinator again and again while members keep running; no group may rebalance."""
    with World(folder, members=3, strategy=chance.choice(STRATEGIES), session_timeout_ms=PATIENT_MS) as world:
        world.await_settled()
        before = len(_rebalances(world))
        for number in range(times):
            tell(f"restart {number + 1} of {times}")
            if number % 2:
                world.service.kill()
            else:
                assert world.service.stop() == 0, world.service.log
            _back(world)
        unexpected = _rebalances(world)[before:]
        outcome = _end(world, {"restarts": times, "unexpected rebalances": len(unexpected)}, tell)
        outcome.wrong += [f"a rebalance that nobody wanted: {event}" for event in unexpected]
        return outcome


def kills(folder: Path, chance: random.Random, times: int, seconds: float, tell: Tell) -> Outcome:
    """Kill drivers, executors, Python workers and gateways while members keep running; no group may rebalance."""
    (folder / "spark").mkdir()
    with (
        Cluster(folder / "spark") as cluster,
        World(
            folder,
            members=MEMBERS,
            strategy=chance.choice(STRATEGIES),
            session_timeout_ms=LONG_MS,
            gateways=2,
            master=cluster.url,
        ) as world,
    ):
        world.await_settled()
        before, began_s, produced = len(_rebalances(world)), time.monotonic(), world.producing.acknowledged
        killer = Killer(world, cluster, chance, tell)
        killer.run(times, began_s + seconds)
        per_s = (world.producing.acknowledged - produced) / (time.monotonic() - began_s)
        figures = {
            "kills": dict(killer.done),
            "coordinator ended by itself": killer.ended_by_itself,
            "longest until all are served, s": killer.longest_s,
            "load": f"{MEMBERS} members, {per_s:.0f} records/s",
        }
        unexpected = _rebalances(world)[before:]
        outcome = _end(world, {**figures, "unexpected rebalances": len(unexpected)}, tell)
        outcome.wrong += [f"a rebalance that nobody wanted: {event}" for event in unexpected]
        return outcome


def _back(world: World) -> None:
    world.start_coordinator()
    world.service.await_ready()
    world.await_progress()


def _rebalances(world: World) -> list[dict[str, Any]]:
    return [event for event in world.events() if event["event"] == "rebalance_started"]


def _end(world: World, figures: dict[str, Any], tell: Tell) -> Outcome:
    tell("calm: all is to be consumed and committed")
    run, report = world.calm_down()
    wrong = [*run.judge(), *map(str, report.findings)]
    lost = [*run.commits_lost(), *run.late_starts()]
    told = {
        "records produced": world.producing.acknowledged,
        "records read": run.records_read,
        "commits acknowledged": len(list(run.acknowledged)),
        "acknowledged commits lost": len(lost),
        "records lost": len(list(run.records_lost())),
        "generations": max(stint.generation for stint in run.stints),
        "records of the coordinator verified": report.records,
        "requests compared": report.requests,
        "findings": report.counts.total(),
    }
    return Outcome({**figures, **told}, wrong)
