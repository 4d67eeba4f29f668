"""A shard's timer index with a STORE beside it: ingests requests, runs transactions, and rebuilds from nothing.

There is no broker. `store` contains the last record of each key that transactions have written to STORE. A test
simulates the work of other owners by applying their fates, and can compare every family of the timer log.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from postdate.kafka.interface import Partition, Record
from postdate.sidecar.clock import SystemClock
from postdate.sidecar.config.settings import Verdicts
from postdate.sidecar.context.holds import HoldState
from postdate.sidecar.dispatch.after_commit import finish
from postdate.sidecar.dispatch.batch import BatchBuilder
from postdate.sidecar.dispatch.batch_content import Batch
from postdate.sidecar.dispatch.decisions import MessageRules
from postdate.sidecar.dispatch.due.due_reader import Due
from postdate.sidecar.dispatch.targets.fault_attribution import FaultAttribution
from postdate.sidecar.dispatch.targets.targets import Target
from postdate.sidecar.index.apply_fates import apply_fate
from postdate.sidecar.index.contradictions import check_delivered
from postdate.sidecar.index.overlay import IndexOverlay, read_up_to
from postdate.sidecar.ingest.ingest import Intake, ingest
from postdate.sidecar.takeover.store_reading import apply_stored
from postdate.sidecar.transaction.verdict_records import VerdictWriter
from postdate.wheel.entry import Entry, Kind, decode_entry, encode_entry
from postdate.wheel.index import TimerIndex
from postdate.wheel.keys import split_key
from postdate.wheel.options import IndexOptions
from postdate.wheel.timer_log.database import FAMILIES
from postdate.wheel.timer_log.identity import Identity
from postdate.wire.dispatch_log import Fate, IdRow
from postdate.wire.headers import Headers
from postdate.wire.requests.rules import RequestRules
from postdate.wire.topics import OwnTopics

BASE_MS = 1_000_000_000_000
STORE_AFTER_MS = 10_000
#: Due times: too soon for STORE, late enough for STORE, and later than that.
SOON_MS, FAR_MS, FARTHER_MS = BASE_MS + 500, BASE_MS + 50_000, BASE_MS + 90_000
OWN = OwnTopics.of("requests")
_SIZE_BYTES_MAX = 1 << 30


class LongDelayShard:
    """One timer index, and the STORE to which its transactions write; `store` contains the last record of each key."""

    def __init__(self, directory: Path, mode: Verdicts = "none", format_version: int = 2) -> None:
        options = IndexOptions(ended_window_ms=60_000)
        self.index = TimerIndex.open(directory, Identity("cluster", "r", "l", 0), options, BASE_MS)
        self.rules = RequestRules(topic="requests", horizon_ms=86_400_000, format_version=format_version)
        self.targets = {
            "orders": Target("orders", partitions=3),
            OWN.dead_letters: Target(OWN.dead_letters, 1),
            OWN.store: Target(OWN.store, 1),
        }
        self.store: dict[bytes, Record] = {}
        self.written = 0
        verdicts = VerdictWriter(OWN, 0, mode, lambda: BASE_MS)
        faults = FaultAttribution(SystemClock(), 30_000, OWN.names())
        rules = MessageRules(self.targets.get, self.rules, faults, 30_000, HoldState(), b"requests/0/")
        self._builder = BatchBuilder(OWN, 0, rules, verdicts)

    def begin(self, next_request: int = 0) -> None:
        """Writes the initial state of a new shard: the next request to read, and the start of its dispatch log."""
        overlay = IndexOverlay(self.index)
        overlay.advance(next_request=next_request, next_dispatch=0, seq=0)
        overlay.write()

    def feed(self, *records: Record, now_ms: int = BASE_MS) -> None:
        """Ingests these records."""
        intake = Intake(self.rules, 0, store_after_ms=STORE_AFTER_MS)
        used = ingest(self.index, intake, list(records), BASE_MS, now_ms=now_ms)
        assert used == len(records)

    def recover(self, *fates: Fate, ids: Sequence[IdRow] = (), at_ms: int = BASE_MS, logged_ms: int = -1) -> int:
        """Applies a record of the dispatch log; returns the number of its `ids` that are not remembered. `logged_ms`:
        the timestamp of the record before it."""
        overlay = IndexOverlay(self.index, BASE_MS, origin_prefix=b"requests/0/")
        overlay.logged_ms = logged_ms
        check_delivered(overlay, ids, at_ms, read_up_to(self.index))
        missed = overlay.remember_ids(ids, at_ms)
        for fate in fates:
            apply_fate(overlay, fate, read_up_to(self.index))
        overlay.write()
        return missed

    def commit(
        self, now_ms: int = SOON_MS, locally: bool = True, logged_ms: int = BASE_MS, behind_ms: int = 0
    ) -> Batch:
        """Commits a transaction with all entries due before `now_ms` on the simulated Kafka; with `locally`, also
        applies it to the index. `logged_ms`: the timestamp of its record in the dispatch log. `behind_ms`: the cancel
        gate admits only entries due this long before `now_ms`."""
        overlay = IndexOverlay(self.index, BASE_MS)
        due = Due(*self.index.scan_due(now_ms - behind_ms, 1_000), now_ms=now_ms, behind_ms=behind_ms)
        batch = self._builder.build(overlay, due, 0.0)
        assert not batch.unknown
        for _, topic, _, key, value, headers in batch.messages:
            if topic == OWN.store:
                assert key is not None
                self.written += 1
                self.store.pop(key, None)
                self.store[key] = Record(self.written, BASE_MS, False, key, value, headers)
        if locally:
            finish(overlay, batch)
            overlay.remember_ids(batch.ids, logged_ms)
            overlay.write()
        return batch

    def park(self, offset: int) -> None:
        """Parks an entry, as if its target failed."""
        overlay = IndexOverlay(self.index)
        key = overlay.find(offset)
        assert key is not None
        entry = overlay.entry(key)
        overlay.remove(key, entry.stored)
        overlay.park(offset, entry.due, entry.target, encode_entry(entry), entry.stored)
        overlay.write()

    def kept(self) -> set[int]:
        """Returns the requests in STORE, without tombstones."""
        return {int(key) for key, record in self.store.items() if record.value is not None}

    def rebuild(self, other: LongDelayShard, low: int, logged_ms: int = -1) -> None:
        """Rebuilds an empty index from the STORE of `other`, with the low-water mark `low`. `logged_ms`: the time of
        the last record of the dispatch log."""
        apply_stored(self.index, Partition(OWN.store, 0), list(other.store.values()), low, logged_ms)
        self.begin(low)

    def held(self) -> dict[int, tuple[Kind, int, bool]]:
        """Returns request offset -> (kind, due time of its key, stored)."""
        return {offset: (Kind(entry.kind), due_ms, entry.stored) for offset, (due_ms, entry) in self.entries().items()}

    def entries(self) -> dict[int, tuple[int, Entry]]:
        """Returns request offset -> (due time of its key, entry)."""
        keys, values = self.index.timer_log.scan(None, b"\xff" * 16, 10_000, _SIZE_BYTES_MAX)
        return {split_key(k)[1]: (split_key(k)[0], decode_entry(v)) for k, v in zip(keys, values, strict=True)}

    def check_schedule_count(self) -> None:
        """Asserts that the counter of schedules equals their number among the entries, parked or not."""
        rows = [*self.families()["entries"], *self.families()["parked"]]
        assert self.index.checkpoint.schedules == sum(decode_entry(value).next is not None for _, value in rows)

    def families(self) -> dict[str, list[tuple[bytes, bytes]]]:
        """Returns every row of the timer log except its identity and counters, for comparison."""
        database = self.index._log._db
        found = {}
        for name in set(FAMILIES) - {"meta"}:
            keys, values = database.range(name, b"", None).collect(10_000, _SIZE_BYTES_MAX)
            found[name] = list(zip(keys, values, strict=True))
        return found


def request(offset: int, value: bytes | None = b"body", /, **headers: str | int) -> Record:
    given: Headers = [(f"postdate-{name}", str(text).encode()) for name, text in headers.items()]
    return Record(offset, BASE_MS, True, b"key", value, [("trace", b"1"), *given])


def schedule(offset: int, due_ms: int, **headers: str | int) -> Record:
    return request(offset, topic="orders", at=due_ms, **headers)


def timed(record: Record, at_ms: int) -> Record:
    """Returns the same record with another timestamp."""
    return msgspec.structs.replace(record, timestamp_ms=at_ms)


def verdict_texts(batch: Batch) -> list[tuple[str, str, str | None, str | None]]:
    """Returns the verdicts of a transaction: (verdict, origin of the control, `of`, `by`)."""
    answers = [json.loads(value) for _, topic, _, _, value, _ in batch.messages if topic == OWN.verdicts and value]
    return [(answer["verdict"], answer["origin"], answer["of"], answer.get("by")) for answer in answers]


def verdicts(batch: Batch) -> list[tuple[str, int]]:
    """Returns the verdicts of a transaction: (verdict, offset of the control)."""
    answers = [json.loads(value) for _, topic, _, _, value, _ in batch.messages if topic == OWN.verdicts and value]
    return [(answer["verdict"], int(answer["origin"].rpartition("/")[2])) for answer in answers]


#: A function that `new_shards` yields.
Make = Callable[..., LongDelayShard]


@contextmanager
def new_shards(directory: Path, mode: Verdicts = "none", format_version: int = 2) -> Iterator[Make]:
    """Yields a function that opens shards in separate directories; at the end, compares their counters of schedules
    with their entries, and closes them. With `begins=False` a shard has no initial state; the returned function may
    override the arguments given here."""
    opened: list[LongDelayShard] = []

    def make(begins: bool = True, **options: Any) -> LongDelayShard:
        given = {"mode": mode, "format_version": format_version, **options}
        opened.append(LongDelayShard(directory / str(len(opened)), **given))
        if begins:
            opened[-1].begin()
        return opened[-1]

    yield make
    for shard in opened:
        shard.check_schedule_count()
        shard.index.close()
