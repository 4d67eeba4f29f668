"""Losses in Kafka, and foreign records, that no sidecar can repair: O10 requires that the shard halts and names the
reason.

A run has one loss, in the first partition. After it every machine loses its disk or its process. If no owner needs the
lost records, every promise holds. Otherwise the shard halts for one of the reasons that the loss permits: it never
continues without records that it needs. The other partition is not affected.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import msgspec

from postdate.kafka.interface import Isolation, Partition, Record
from postdate.sidecar.errors import HaltReason
from postdate.sidecar.states import State
from postdate.wire.dispatch_log import BEAT, decode_record, encode_record
from support.simulation.oracles.stored_entries import STORE
from support.simulation.requests.traffic import REQUESTS
from support.simulation.runtime.simulated_run import SimulatedRun

#: The partition with the loss.
LOSER = 0
_LOG = f"{REQUESTS}.dispatch-log"

#: Loss or foreign record -> the permitted reasons for a halt.
LOSSES: dict[str, frozenset[HaltReason]] = {
    "requests deleted": frozenset({HaltReason.LOW_WATER_OUTSIDE, HaltReason.REQUESTS_LOST}),
    "fates deleted": frozenset({HaltReason.FATES_MISSING, HaltReason.DISPATCH_LOG_EMPTY}),
    "foreign record": frozenset({HaltReason.FOREIGN_RECORD}),
    "forged record": frozenset({HaltReason.SEQ_BROKEN}),
    "foreign record in STORE": frozenset({HaltReason.FOREIGN_RECORD}),
}
#: The loss of logs that expired while no process ran (`expiry`), and its permitted reasons.
LOG_EXPIRED = "log expired"
_MAY_HALT = LOSSES | {LOG_EXPIRED: frozenset({HaltReason.DISPATCH_LOG_EMPTY, HaltReason.REQUESTS_LOST})}


class Losses:
    """The loss of one run; `kind` is empty until it has happened."""

    def __init__(self, run: SimulatedRun, random: Random) -> None:
        self.kind = ""
        self._silent_to = 0  # the last seq of a deleted log without fates
        self._run = run
        self._random = random

    def strike(self) -> None:
        """Injects the loss."""
        if self.kind:
            return
        run, kind = self._run, self._random.choice(sorted(LOSSES))
        what: dict[str, Callable[[], bool]] = {
            "requests deleted": self._delete_requests,
            "fates deleted": self._delete_fates,
            "foreign record": lambda: self._slip_in(_LOG, None, b"not ours"),
            "forged record": self._forge,
            "foreign record in STORE": lambda: self._slip_in(STORE, b"not ours", b"not ours"),
        }
        if not what[kind]():
            return
        self.kind = kind
        run.reached[f"loss: {kind}"] += 1
        run.trace(f"loss: {kind}")
        for machine in run.machines:
            process = run.process_on(machine)
            if self._random.random() < 0.8:
                run.lose_disk(machine)
            elif process is not None:
                run.kill(process)

    def halted(self) -> set[int]:
        """Returns the partitions whose shards are halted for a permitted reason."""
        if not self.kind:
            return set()
        why = [
            actor.shard.why
            for process in self._run.processes
            for actor in process.shards()
            if actor.part.index == LOSER and actor.shard.state is State.HALTED
        ]
        reasons = _MAY_HALT[self.kind]
        return {LOSER} if any(text.startswith(f"{reason}:") for text in why for reason in reasons) else set()

    def excused(self, wrong: list[str]) -> list[str]:
        """Returns the violations that the loss does not excuse. The loss excuses violations about the forged record
        itself, and about requests that were read before they were deleted. It excuses a log that repeats `seq` if all
        deleted records were owner records without fates: the new owner then continues from the `seq` of its disk."""
        last = self._silent_to
        counts_again = [f"O6: partition {LOSER} has seq {seq} after {last} at " for seq in range(1, last + 1)]
        excuses = {
            "forged record": (f"O6: partition {LOSER} ",),
            "requests deleted": ("I3:", "I5:"),
            "fates deleted": ("I3:", *counts_again),
        }
        return [line for line in wrong if not line.startswith(excuses.get(self.kind, ("-",)))]

    def _delete_requests(self) -> bool:
        log = self._run.broker.topics[REQUESTS].logs[LOSER]
        records = self._log_records()
        # without a record of the dispatch log, no owner can know that the shard had requests
        if not records or log.stable_end < log.end:
            return False
        low = decode_record(records[-1].value).low_water
        if log.end <= low + 1:
            return False
        log.delete_before(self._random.randint(low + 1, log.end))
        return True

    def _delete_fates(self) -> bool:
        """Deletes the first part of the dispatch log, or all of it."""
        log, records = self._run.broker.topics[_LOG].logs[LOSER], self._log_records()
        if not records or log.stable_end < log.end:
            return False
        before = self._random.choice([log.end, self._random.randint(records[0].offset + 1, log.end)])
        if before > records[-1].offset and not any(decode_record(record.value).fates for record in records):
            self._silent_to = decode_record(records[-1].value).seq
        part = Partition(_LOG, LOSER)
        self._run.archive.setdefault(part, []).extend(record for record in records if record.offset < before)
        log.delete_before(before)
        return True

    def _slip_in(self, topic: str, key: bytes | None, value: bytes) -> bool:
        if not self._run.broker.topics[topic].logs[LOSER].has_leader:
            return False
        self._run.broker.append(Partition(topic, LOSER), key, value, [], 0)
        return True

    def _forge(self) -> bool:
        records = self._log_records()
        if not records:
            return False
        last = decode_record(records[-1].value)
        forged = msgspec.structs.replace(last, seq=last.seq + 2, kind=BEAT, fates=[])
        return self._slip_in(_LOG, None, encode_record(forged))

    def _log_records(self) -> list[Record]:
        log = self._run.broker.topics[_LOG].logs[LOSER]
        return log.read(log.start, Isolation.READ_COMMITTED, 1 << 30)[0]
