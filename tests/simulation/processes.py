"""The processes of the members in a simulation, with the mailboxes that they read."""

from collections.abc import Mapping, Sequence
from random import Random

from coordinator.member.requests import MemberConfig
from tests.simulation import rest
from tests.simulation.actors import Process
from tests.simulation.cluster import Cluster
from tests.simulation.consumers import Consumer
from tests.simulation.faults import Swarm
from tests.simulation.worlds import Members

AnyProcess = Process | Consumer


class Processes:
    """The processes that run, and those that start again later.

    Args:
        protocols: The protocols that the members of each group use.
    """

    def __init__(self, chance: Random, protocols: Mapping[str, Members], cluster: Cluster, swarm: Swarm) -> None:
        self._chance, self._protocols, self._cluster, self._swarm = chance, protocols, cluster, swarm
        self.running: list[AnyProcess] = []
        self._started = 0
        self._inboxes: dict[str, list[AnyProcess]] = {}
        self._restarts: list[tuple[int, MemberConfig]] = []

    def start(self, config: MemberConfig, now_ms: int) -> None:
        """Start a process for a member, of a protocol that its group may have."""
        protocols = self._protocols[config.group_id]
        process: AnyProcess
        if protocols is Members.CONSUMER or (protocols is Members.MIXED and self._chance.random() < 0.5):
            process = Consumer(config, self._started, self._chance, self._cluster, now_ms)
        else:
            cluster = self._cluster if protocols is Members.MIXED else None
            process = Process(config, self._started, self._chance, self._swarm, now_ms, cluster)
        self._started += 1
        self.running.append(process)
        self._inboxes.setdefault(config.reply_to, []).append(process)

    def start_later(self, config: MemberConfig, at_ms: int) -> None:
        """Start a process for a member at a later time."""
        self._restarts.append((at_ms, config))

    def restart(self, until_ms: int, now_ms: int) -> None:
        """Start the processes that are due."""
        for due in [each for each in self._restarts if each[0] <= until_ms]:
            self._restarts.remove(due)
            self.start(due[1], now_ms)

    def move(self, process: AnyProcess) -> None:
        """Change a process's mailbox; the process reads the earlier mailbox as well."""
        if process.inbox == process.config.reply_to:
            process.inbox = f"{process.config.reply_to}, moved by {process.number}"
            self._inboxes[process.inbox] = [process]

    def kill(self, process: AnyProcess) -> None:
        self.running.remove(process)
        for inbox in {process.config.reply_to: None, process.inbox: None}:
            self._inboxes[inbox].remove(process)

    def kill_doubles(self) -> None:
        """Leave one process of each configuration."""
        for process in list(self.running):
            if sum(other.config == process.config for other in self.running) > 1:
                self.kill(process)

    def readers(self, inbox: str) -> Sequence[AnyProcess]:
        """Return the processes that read a mailbox."""
        return self._inboxes.get(inbox, ())

    def of_group(self, group_id: str) -> list[rest.AnyProcess]:
        """Return the processes of a group."""
        return [process for process in self.running if process.config.group_id == group_id]

    def subscribed(self) -> dict[str, list[rest.AnyProcess]]:
        """Return the subscribed processes of each group."""
        return {group_id: [p for p in self.of_group(group_id) if p.is_subscribed] for group_id in self._protocols}
