"""Invariant I3, checked for a shard's timer index at every takeover and after each of its commits.

R is the next request to read, and D the next dispatch-log offset to apply. The index contains the entries E, which are
the requests below R except those that ended below D, and the marks T, which are the fates below D of requests at or
above R. STORE contains exactly the requests that E and T mark as stored, unless a later commit has changed it. Each id
is pending once, and its row leads to its entry. R and D come from the index. All other values come from the requests
that were sent and from the logs. The checks also read the logs behind an open foreign transaction, as no client can.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from postdate.kafka.interface import Partition, Record
from postdate.wheel.entry import PENDING, Entry, decode_entry
from postdate.wheel.index import TimerIndex
from postdate.wheel.keys import entry_key, split_key
from postdate.wire.dispatch_log import BulkProgress, Fate, SeriesFate, decode_record
from postdate.wire.errors import FormatError
from support.oracles.expected_records import FINAL_FATES
from support.simulation.oracles.stored_entries import STORE, differences, held
from support.simulation.requests.recurring import recurring_differences
from support.simulation.requests.traffic import REQUESTS, STRANGERS_FROM, SimulatedTraffic

if TYPE_CHECKING:
    from support.kafka_simulator.log import PartitionLog
    from support.simulation.oracles.interpretations import Readings
    from support.simulation.runtime.simulated_run import SimulatedRun

_LOG = f"{REQUESTS}.dispatch-log"
_ALL, _BEHIND = 1 << 30, b"\xff" * 17


@dataclass
class _LogContent:
    """The content of the dispatch log below an offset, valid while the log is not rewritten."""

    below: int = 0
    rewrites: int = -1
    final: set[int] = field(default_factory=set)
    stored: set[int] = field(default_factory=set)
    moved: dict[int, int] = field(default_factory=dict)
    swept: dict[int, int] = field(default_factory=dict)
    series: dict[int, int] = field(default_factory=dict)
    decided: dict[int, int] = field(default_factory=dict)
    switches: dict[int, list[tuple[int, int, bool]]] = field(default_factory=dict)
    extras: dict[int, dict[int, list[int]]] = field(default_factory=dict)

    @property
    def touched(self) -> set[int]:
        return self.final | self.stored | self.moved.keys() | self.series.keys()

    def add(self, fate: Fate) -> None:
        if fate.name in FINAL_FATES:
            self.final.add(fate.offset)
            if isinstance(fate, SeriesFate):
                self.series[fate.survivor] = fate.start_ms
        elif fate.name == "moved":
            self.moved[fate.offset] = fate.due_ms
        elif isinstance(fate, BulkProgress):
            self.swept[fate.offset] = fate.count
        elif fate.name in ("occurred", "skipped"):
            self.decided[fate.offset] = fate.last
        elif fate.name in ("paused", "resumed"):
            switch = (fate.control, fate.at_ms, fate.name == "paused")
            self.switches.setdefault(fate.offset, []).append(switch)
        elif fate.name == "triggered":
            self.extras.setdefault(fate.offset, {})[fate.control] = [fate.control, 1, *(3 * [fate.at_ms])]
        elif fate.name == "backfilled":
            extra = [fate.control, 1, fate.first_ms, fate.end_ms, fate.at_ms]
            self.extras.setdefault(fate.offset, {})[fate.control] = extra
        elif fate.name in ("extra", "extra-dead"):
            extra = self.extras.setdefault(fate.offset, {}).pop(fate.control, [])
            if fate.next_ms:
                self.extras[fate.offset][fate.control] = [fate.control, fate.number + 1, fate.next_ms, *extra[3:]]
        else:
            self.stored.add(fate.offset)


class Invariants:
    """Checks the timer indexes of one run; adds violations to `wrong`."""

    def __init__(self, run: SimulatedRun, traffic: SimulatedTraffic, readings: Callable[[], Readings]) -> None:
        """`readings`: returns the interpretations by the processes that were started so far."""
        self._run = run
        self._traffic = traffic
        self._readings = readings
        self._decoded: dict[tuple[int, int], list[Fate]] = {}
        self._last: dict[int, _LogContent] = {}
        """Partition -> the result of the last check, so that the next check reads only new records."""

    def check(self, part: int, index: TimerIndex, when: str) -> None:
        """Compares an index with the logs. Does nothing while a transaction of Postdate has no marker yet."""
        run = self._run
        log, store = (run.broker.topics[name].logs[part] for name in (_LOG, STORE))
        read, applied = index.checkpoint.next_request, index.checkpoint.next_dispatch
        assert read is not None
        assert applied is not None
        if _is_between(log, applied):
            return
        run.reached["I3 looked at"] += 1
        content = self._content(part, log, applied)
        entries = {split_key(key)[1]: entry for key, entry in _entries(index)}
        wrong = self._compare(part, index, entries, content, read)
        if not log.committed(applied) and not _is_between(log, log.end) and not _is_between(store, store.end):
            wrong += self._look_at_store(part, held(store.committed()), entries, content, read)
        run.wrong += [f"{complaint} ({run.acting().name}, {when})" for complaint in wrong]

    def _compare(
        self, part: int, index: TimerIndex, entries: dict[int, Entry], content: _LogContent, read: int
    ) -> list[str]:
        wrong: list[str] = []
        requests = {offset for index_, offset in self._traffic.origins() if index_ == part}
        expected = {offset for offset in requests if offset < read} - content.final
        bulks = {row.offset: row.count for row in index.timer_log.bulks}
        begun = {offset: count for offset, count in content.swept.items() if offset not in content.final}
        if begun != {offset: count for offset, count in bulks.items() if count >= 0}:
            wrong.append(f"I3: the bulk controls are {bulks}, the log shows {begun}")
        expected -= bulks.keys()
        self._run.reached["a bulk control has begun"] += bool(begun)
        self._run.reached["one that is not read yet has begun"] += any(offset >= read for offset in begun)
        if entries.keys() != expected:
            wrong.append(f"I3: entries {sorted(entries)} are held below {read}, not {sorted(expected)}")
        for offset in sorted(requests):
            mark = index.timer_log.mark(offset)
            ahead = offset >= read and offset in content.touched
            if (mark is not None) != ahead:
                wrong.append(f"I3: the mark of {offset} is {mark}, R is {read}")
            elif mark is not None:
                final = offset in content.final
                is_so = (mark.final, mark.stored, mark.due, mark.series_ms)
                due_ms, series_ms = (
                    (-1, -1) if final else (content.moved.get(offset, -1), content.series.get(offset, -1))
                )
                if is_so != (final, not final and offset in content.stored, due_ms, series_ms):
                    wrong.append(f"I3: the mark of {offset} is {is_so}")
                self._count_mark(offset, content)
        for offset, entry in entries.items():
            if entry.series_ms not in (-1, content.series.get(offset, entry.series_ms)):
                wrong.append(f"I3: the series of {offset} began at {entry.series_ms}, not {content.series[offset]}")
        pending = [(entry.id, entry_key(entry.due, o)) for o, entry in entries.items() if entry.kind in PENDING]
        named = [(caller, key) for caller, key in pending if caller]
        found = [(caller, index.timer_log.id_key(caller)) for caller, _ in named]
        is_ambiguous = len(dict(named)) != len(named) or found != named
        if is_ambiguous and not bulks:  # messages that a bulk control selects cannot be found by id
            wrong.append(f"I3: ids lead to {found}, pending are {named}")
        return wrong

    def _look_at_store(
        self, part: int, kept: dict[int, Record], entries: dict[int, Entry], content: _LogContent, read: int
    ) -> list[str]:
        """Checks that STORE contains exactly the requests that the index marks as stored, each in its present state,
        and that it contains every pending request that the request topic has lost (I5)."""
        wrong: list[str] = []
        believed = {offset for offset, entry in entries.items() if entry.stored}
        believed |= {offset for offset in content.stored - content.final if offset >= read}
        if kept.keys() != believed:
            wrong.append(f"I3: STORE holds {sorted(kept)}, the index believes {sorted(believed)}")
        for offset, record in kept.items():
            recurring = self._traffic.recurrences.requests.get((part, offset))
            if recurring is not None and recurring.action == "schedule":
                switches, extras = content.switches.get(offset, []), sorted(content.extras.get(offset, {}).values())
                wrong += recurring_differences(recurring, content.decided.get(offset, 0), switches, extras, record)
            request = self._traffic.requests.get((part, offset))
            if request is None:
                continue
            wrong += differences(request, content.moved.get(offset, -1), self._readings(), record)
        start = self._run.broker.topics[REQUESTS].logs[part].start
        alone = {offset for offset in entries if offset < start}
        self._run.reached["in STORE alone"] += len(alone)
        if alone - kept.keys():
            wrong.append(f"I5: requests {sorted(alone - kept.keys())} are neither ended nor kept anywhere")
        return wrong

    def _count_mark(self, offset: int, content: _LogContent) -> None:
        reached = self._run.reached
        if offset in content.final:
            reached["mark final"] += 1
        else:
            reached["mark stored"] += offset in content.stored
            reached["mark moved"] += offset in content.moved
            reached["mark stored and moved"] += offset in content.stored and offset in content.moved

    def _content(self, part: int, log: PartitionLog, before: int) -> _LogContent:
        old = self._run.archive.get(Partition(_LOG, part), [])
        content = self._last.pop(part, _LogContent())
        if old or content.rewrites != log.rewrites or content.below > before:
            content = _LogContent()
        for record in (*old, *log.committed(content.below)):
            if record.offset < before:
                for fate in self._fates(part, record):
                    content.add(fate)
        if not old and log.stable_end >= before:  # otherwise some records may still be undecided
            content.below, content.rewrites = before, log.rewrites
            self._last[part] = content
        return content

    def _fates(self, part: int, record: Record) -> list[Fate]:
        """Returns the fates of a record of the dispatch log; none if it is not a record of Postdate."""
        found = self._decoded.get((part, record.offset))
        if found is None:
            found = []
            with suppress(FormatError):
                found = decode_record(record.value).fates
            self._decoded[part, record.offset] = found
        return found


def _is_between(log: PartitionLog, before: int) -> bool:
    """True if a transaction of Postdate is undecided below an offset of this log."""
    return any(first < before for producer, first in log.undecided().items() if producer < STRANGERS_FROM)


def _entries(index: TimerIndex) -> Iterator[tuple[bytes, Entry]]:
    """Yields all entries of the index, parked ones included."""
    keys, values = index.timer_log.scan(None, _BEHIND, _ALL, _ALL)
    yield from zip(keys, map(decode_entry, values), strict=True)
    for key in index.timer_log.scan_parked_keys(b"", _ALL):
        raw = index.timer_log.parked(key)
        assert raw is not None
        yield key[-16:], decode_entry(raw)
