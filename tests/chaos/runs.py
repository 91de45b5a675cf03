"""The six kinds of runs. Each runs to its end and is judged."""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.chaos.brokers import BrokerFaults
from tests.chaos.deployment import STRATEGIES, Deployment
from tests.chaos.faults import PAUSE_SESSIONS, Chaos
from tests.chaos.killing import MEMBERS, Killer
from tests.chaos.moves import Moving, TwoCoordinators
from tests.chaos.takeovers import Takeovers
from tests.cluster.standalone import Cluster
from tests.cluster3.brokers import ThreeBrokers

Report = Callable[[str], None]

SESSION_MS = 3_000
PATIENT_MS = 10_000
"""The session timeout in runs that restart only the coordinator, which is unavailable for longer than this."""

LONG_MS = 30_000
"""The session timeout of members that must not expire. kafka-python finds a gateway again only after some seconds."""


@dataclass
class Outcome:
    """The result of a run: its figures, and all broken promises."""

    figures: dict[str, Any]
    wrong: list[str]


def chaos(folder: Path, chance: random.Random, seconds: float, report: Report) -> Outcome:
    """Cause all kinds of faults for `seconds`."""
    strategy = chance.choice(STRATEGIES)
    with Deployment(folder, members=3, strategy=strategy, session_timeout_ms=SESSION_MS) as deployment:
        deployment.await_settled()
        faults = Chaos(deployment, chance, PAUSE_SESSIONS * SESSION_MS / 1000, report)
        faults.run(seconds)
        return _end(deployment, {"strategy": strategy, "faults": dict(faults.done)}, report)


def restarts(folder: Path, chance: random.Random, times: int, report: Report) -> Outcome:
    """Stop or kill the coordinator repeatedly while members keep running, and check that no group rebalances."""
    with Deployment(folder, members=3, strategy=chance.choice(STRATEGIES), session_timeout_ms=PATIENT_MS) as deployment:
        deployment.await_settled()
        before = len(_rebalances(deployment))
        for number in range(times):
            report(f"restart {number + 1} of {times}")
            if number % 2:
                deployment.service.kill()
            else:
                assert deployment.service.stop() == 0, deployment.service.log
            _start_again(deployment)
        return _end_without_rebalance(deployment, before, {"restarts": times}, report)


def kills(folder: Path, chance: random.Random, times: int, seconds: float, report: Report) -> Outcome:
    """Kill drivers, executors, Python workers and gateways while members keep running. No group may rebalance."""
    (folder / "spark").mkdir()
    with (
        Cluster(folder / "spark") as cluster,
        Deployment(
            folder,
            members=MEMBERS,
            strategy=chance.choice(STRATEGIES),
            session_timeout_ms=LONG_MS,
            gateways=2,
            master=cluster.url,
        ) as deployment,
    ):
        deployment.await_settled()
        before, began_s, produced = len(_rebalances(deployment)), time.monotonic(), deployment.producing.acknowledged
        killer = Killer(deployment, cluster, chance, report)
        killer.run(times, began_s + seconds)
        per_s = (deployment.producing.acknowledged - produced) / (time.monotonic() - began_s)
        figures = {
            "kills": dict(killer.done),
            "coordinator ended by itself": killer.ended_by_itself,
            "longest until all are served, s": killer.longest_s,
            "load": f"{MEMBERS} members, {per_s:.0f} records/s",
        }
        return _end_without_rebalance(deployment, before, figures, report)


def takeovers(folder: Path, chance: random.Random, times: int, seconds: float, report: Report) -> Outcome:
    """Kill, suspend and stop drivers while others stand by and members keep running. No group may rebalance."""
    with Deployment(
        folder, members=MEMBERS, strategy=chance.choice(STRATEGIES), session_timeout_ms=LONG_MS, stand_by=True
    ) as deployment:
        deployment.await_settled()
        before, began_s = len(_rebalances(deployment)), time.monotonic()
        taking_over = Takeovers(deployment, chance, report)
        taking_over.run(times, began_s + seconds)
        figures = {
            "takeovers": dict(taking_over.done),
            "longest until all are served, s": taking_over.longest_s,
            "load": f"{MEMBERS} members",
        }
        taking_over.stop_others()
        return _end_without_rebalance(deployment, before, figures, report)


def brokers(folder: Path, chance: random.Random, times: int, seconds: float, report: Report) -> Outcome:
    """Kill, freeze, restart and cut off brokers while members keep running. Every member must be served after each."""
    (folder / "brokers").mkdir()
    with (
        ThreeBrokers(folder / "brokers") as three,
        Deployment(
            folder,
            members=MEMBERS,
            strategy=chance.choice(STRATEGIES),
            session_timeout_ms=LONG_MS,
            gateways=2,
            brokers=three,
        ) as deployment,
    ):
        deployment.await_settled()
        began_s = time.monotonic()
        faults = BrokerFaults(deployment, three, chance, report)
        faults.run(times, began_s + seconds)
        faults.find_untrue()
        figures = {
            "brokers": dict(faults.done),
            "coordinator ended by itself": faults.ended_by_itself,
            "members that did not come back": faults.not_back,
            "untrue sentences": len(faults.untrue),
            "longest until all are served, s": faults.longest_s,
            "load": f"{MEMBERS} members",
        }
        outcome = _end(deployment, figures, report)
        outcome.wrong += faults.untrue
        return outcome


def moves(folder: Path, chance: random.Random, times: int, seconds: float, report: Report) -> Outcome:
    """Move all groups between two coordinators, and kill a process in each move. No group may rebalance."""
    with TwoCoordinators(
        folder, members=MEMBERS, strategy=chance.choice(STRATEGIES), session_timeout_ms=LONG_MS, gateways=2
    ) as deployment:
        deployment.await_settled()
        deployment.make_idle_groups()
        before, began_s = len(_rebalances(deployment)), time.monotonic()
        moving = Moving(deployment, chance, report)
        moving.run(times, began_s + seconds)
        figures = {
            "moves": dict(moving.done),
            "longest until all are served, s": moving.longest_s,
            "load": f"{MEMBERS} members",
        }
        lost = list(deployment.idle_groups_lost())
        outcome = _end_without_rebalance(deployment, before, figures, report)
        outcome.wrong += lost
        return outcome


def _start_again(deployment: Deployment) -> None:
    deployment.start_coordinator()
    deployment.service.await_ready()
    deployment.await_progress()


def _rebalances(deployment: Deployment) -> list[dict[str, Any]]:
    return [event for event in deployment.events() if event["event"] == "rebalance_started"]


def _end_without_rebalance(deployment: Deployment, before: int, figures: dict[str, Any], report: Report) -> Outcome:
    """End a run in which no rebalance was expected after the first `before` ones."""
    unexpected = _rebalances(deployment)[before:]
    outcome = _end(deployment, {**figures, "unexpected rebalances": len(unexpected)}, report)
    outcome.wrong += [f"an unexpected rebalance: {event}" for event in unexpected]
    return outcome


def _end(deployment: Deployment, figures: dict[str, Any], report: Report) -> Outcome:
    report("no more faults: waiting until all records are consumed and committed")
    run, verified = deployment.end_run()
    wrong = [*run.judge(), *(str(finding) for each in verified for finding in each.findings)]
    lost = [*run.commits_lost(), *run.late_starts()]
    totals = {
        "records produced": deployment.producing.acknowledged,
        "records read": run.records_read,
        "commits acknowledged": len(list(run.acknowledged)),
        "acknowledged commits lost": len(lost),
        "records lost": len(list(run.records_lost())),
        "generations": max(stint.generation for stint in run.stints),
        "records of the coordinator verified": sum(each.records for each in verified),
        "requests compared": sum(each.requests for each in verified),
        "findings": sum(each.counts.total() for each in verified),
    }
    return Outcome({**figures, **totals}, wrong)
