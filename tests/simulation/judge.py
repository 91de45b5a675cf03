"""The judge runs batches through the coordinator as the engine does, and checks every promise.

The state after batch N-1 is bytes. Batch N has fixed requests and a fixed time. It is attempted until one attempt is
not killed. Every attempt starts from the same bytes and must produce equal outputs and an equal state (I16; F2 to F5,
F9). Before batch N+1 everything but the bytes is dropped (I18, I21; F6). A step shows the checkers only the groups
whose bytes have changed; the other groups are as in earlier steps.
"""

from collections.abc import Mapping, Sequence
from hashlib import blake2b

import msgspec

from coordinator.base.config import Config
from coordinator.base.errors import CorruptState
from coordinator.messages.outputs import Output
from coordinator.messages.requests import Received
from coordinator.shard.shard import Shard
from coordinator.state import codec
from coordinator.state.classic_group import Group
from coordinator.state.codec import MemberIndexCache, ShardSnapshot
from coordinator.state.consumer_group import ConsumerGroup
from tests.coordinator.invariants import MisroutedIsRefused, Step, Truth, all_checkers, name_of
from tests.simulation.holding import HeldAnswersStayTrue
from tests.simulation.script import Batch, Script

SECRET = b"a secret of the simulation"

_encode = msgspec.msgpack.Encoder().encode


class Broken(Exception):
    """A broken promise.

    Args:
        promise: The name of the checker or audit that raises.
    """

    def __init__(self, promise: str, why: str) -> None:
        super().__init__(promise, why)
        self.promise, self.why = promise, why

    def __str__(self) -> str:
        return f"{self.promise}: {self.why}"


class Judge:
    """One shard from its first batch on, with the outputs of each batch."""

    def __init__(self, config: Config, written_ms: Mapping[int, int] | None = None, partitions: int = 1) -> None:
        self.config, self.written_ms, self.partitions = config, {} if written_ms is None else written_ms, partitions
        self._is_driver_right = self._is_log_right = True
        self.state: bytes | None = None
        self.deferred: list[Received] = []
        self.kept = ShardSnapshot()
        self.next_deadline_ms: int | None = None
        self.groups: dict[str, Group | ConsumerGroup] = {}
        """The groups after their last change."""
        self.outputs: list[list[Output]] = []
        self.requests = 0
        self._checkers = [*all_checkers(config), MisroutedIsRefused(partitions), HeldAnswersStayTrue()]
        self._digest = blake2b(digest_size=16)
        self._rosters = MemberIndexCache()

    @property
    def digest(self) -> str:
        """A hash of all outputs and all states."""
        return self._digest.hexdigest()

    def shard(self, state: bytes | None) -> Shard:
        """Load the stored state."""
        return Shard(0, self.partitions, SECRET, self.config, state, self._rosters)

    def take(self, records: Sequence[Received], batch: Batch) -> list[Output]:
        """Run one batch, and return all of its outputs, those of killed attempts included.

        Raises:
            Broken: at the first broken promise.
        """
        if batch.damaged is not None and self.state is not None:
            self._refuse(damaged(self.state, batch.damaged))
        log = [*self.deferred, *records]
        attempts = [self._attempt(self.state, log, batch.now_ms) for _ in range(len(batch.killed) + 1)]
        outputs, state, self.deferred = attempts[-1]
        if any(attempt != attempts[-1] for attempt in attempts):
            raise Broken("EqualBytes", "a killed attempt gave other outputs or another state than the last attempt")
        self.requests += len(records)
        self._digest.update(_encode(outputs))
        self._digest.update(state or b"none")
        self._watch(self._step(records, outputs, batch, self._look(state)))
        self.outputs.append(outputs)
        killed_outputs = [output for (all_of_it, _, _), share in zip(attempts, batch.killed, strict=False)
                for output in all_of_it[: len(all_of_it) * share // 1_000]]  # fmt: skip
        return killed_outputs + outputs if killed_outputs else outputs

    def _step(
        self,
        records: Sequence[Received],
        outputs: Sequence[Output],
        batch: Batch,
        groups: Mapping[str, Group | ConsumerGroup],
    ) -> Step:
        classic = {group_id: group for group_id, group in groups.items() if isinstance(group, Group)}
        others = {group_id: group for group_id, group in groups.items() if isinstance(group, ConsumerGroup)}
        truth = self._truth(records, batch)
        return Step(records, outputs, batch.now_ms, classic, truth, self.deferred, others)

    def _refuse(self, state: bytes) -> None:
        try:
            self.shard(state)
        except CorruptState:
            return
        raise Broken("DamageIsNoticed", "a damaged state was accepted")

    def _attempt(
        self, state: bytes | None, records: Sequence[Received], now_ms: int
    ) -> tuple[list[Output], bytes | None, list[Received]]:
        try:
            shard = self.shard(state)
            outputs = shard.step(records, now_ms)
            self.next_deadline_ms = shard.next_deadline_ms
            return outputs, shard.to_bytes(), shard.deferred
        except Exception as error:
            raise Broken(f"Coordinator raised {type(error).__name__}", str(error)) from error

    def _look(self, state: bytes | None) -> dict[str, Group | ConsumerGroup]:
        """Decode the new state, and return the groups that it changes."""
        kept = codec.decode_shard(state) if state is not None else ShardSnapshot()
        if state is not None and codec.encode_shard(kept) != state:
            raise Broken("EqualBytes", "decoding a state and encoding it again changes it")
        before, self.state, self.kept = self.kept.groups, state, kept
        changed = {
            group_id: codec.decode_group(stored, self._rosters)
            for group_id, stored in kept.groups.items()
            if stored != before.get(group_id)
        }
        for group_id in before.keys() - kept.groups.keys():
            del self.groups[group_id]
        self.groups.update(changed)
        return changed

    def _truth(self, records: Sequence[Received], batch: Batch) -> Truth:
        self._is_driver_right &= batch.true_ms is None
        self._is_log_right &= not any(received.offset in self.written_ms for received in records)
        now_ms = batch.now_ms if batch.true_ms is None else batch.true_ms
        return Truth(now_ms, self.written_ms, self._is_driver_right, self._is_log_right)

    def _watch(self, step: Step) -> None:
        for checker in self._checkers:
            try:
                checker.watch(step)
            except Exception as error:
                raise Broken(name_of(checker), f"{type(error).__name__}: {error}") from error


def replayed(script: Script) -> Judge:
    """Replay a script with a new judge.

    Raises:
        Broken: at the first broken promise.
    """
    judge = Judge(script.config, script.written_ms, script.partitions)
    for records, batch in script.batches():
        judge.take(records, batch)
    return judge


def damaged(state: bytes, place: int) -> bytes:
    """Return a state with one bit flipped, `place` thousandths into it."""
    at = min(len(state) * place // 1_000, len(state) - 1)
    return b"%b%c%b" % (state[:at], state[at] ^ 1, state[at + 1 :])
