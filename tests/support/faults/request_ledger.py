"""Every request and its outcome, read from Kafka while the test runs, in some 70 bytes per request.

For each request partition there are columns, indexed by the request's offset. The topics may be filed in any order: a
message may be read before its request. Messages are compared by a 64-bit hash of target, key, value and headers. The
value of a request, which the load wrote, states the intended outcome (`RequestKind`). Nothing here comes from the
sidecar.

Thread rule: file under `lock`, from one thread; the methods that compute figures acquire the lock themselves.
"""

from __future__ import annotations

import threading
from array import array
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from postdate.wire.dispatch_log import FINAL, MOVED, OWNER, Moved, decode_record
from postdate.wire.headers import ACTION, AT, DEAD_REASON, DELAY, DUE, ID, KEY, ORIGIN, PREFIX, TOPIC
from postdate.wire.headers import Headers as Headers
from postdate.wire.origins import parse_origin
from postdate.wire.verdicts import decode_verdict

_ROWS_AT_ONCE = 65_536
FATES = ("", *sorted(FINAL))
#: Milliseconds: without a fault, every request has ended by this time after its due time.
OVERDUE_MS = 1_000

Ints = NDArray[np.int64]


class RequestKind(IntEnum):
    """The intended outcome of a request: the first letter of its value."""

    NONE = 0
    DELIVER = ord("D")
    DEAD = ord("X")
    BY_ID = ord("I")
    """Delivered, cancelled or replaced; the controls determine which."""
    CONTROL = ord("C")


#: Column -> type code, and the value of an empty row.
_COLUMNS: dict[str, tuple[str, int]] = {
    "kind": ("B", 0),
    "asked_at": ("q", -1),
    "due": ("q", -1),
    "digest": ("q", 0),
    "seen": ("B", 0),
    "seen_digest": ("q", 0),
    "seen_due": ("q", -1),
    "dead": ("B", 0),
    "fate": ("B", 0),
    "ends": ("B", 0),
    "ended_at": ("q", -1),
    "ended_in": ("q", -1),
    "moved": ("q", -1),
    "queue": ("q", 0),
    "place": ("q", -1),
    "known": ("q", -1),
}


class Columns:
    """All columns about the requests of one partition."""

    def __init__(self) -> None:
        self.of = {name: array(code) for name, (code, _) in _COLUMNS.items()}
        self.size = 0
        self.end = 0
        """The largest filed offset plus one."""
        self.low = 0
        """All requests below this offset have ended."""

    def reach(self, offset: int) -> None:
        """Adds rows until the columns have one for this offset."""
        while offset >= self.size:
            for name, (code, empty) in _COLUMNS.items():
                self.of[name].extend(array(code, [empty]) * _ROWS_AT_ONCE)
            self.size += _ROWS_AT_ONCE

    def ints(self, name: str, start: int = 0, end: int | None = None) -> Ints:
        """Returns a copy of the rows of a column from `start` to `end`, by default to the last row."""
        code, _ = _COLUMNS[name]
        whole = np.frombuffer(self.of[name], dtype=np.uint8 if code == "B" else np.int64)
        return whole[start : self.size if end is None else end].astype(np.int64)  # a copy, since the columns may grow


@dataclass(frozen=True)
class IdChange:
    """A request with an id, in the order of its partition; `action` is empty for a schedule."""

    offset: int
    action: str


@dataclass
class RequestLedger:
    """All requests of one request topic, by partition."""

    requests: str
    parts: dict[int, Columns] = field(default_factory=lambda: defaultdict(Columns))
    by_id: dict[tuple[int, bytes], list[IdChange]] = field(default_factory=lambda: defaultdict(list))
    moves: set[tuple[int, int, int]] = field(default_factory=set)
    """(partition, request, control that moved the request)."""
    verdicts: dict[tuple[int, int], list[tuple[str, int]]] = field(default_factory=lambda: defaultdict(list))
    """(partition, origin) -> its verdicts: the name, and the offset of the affected request, or -1."""
    reasons: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    seqs: dict[int, int] = field(default_factory=dict)
    owners: list[tuple[int, int, str, int]] = field(default_factory=list)
    """(partition, takeover, instance, time) of each owner record."""
    wrong: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def file_request(
        self, part: int, offset: int, at_ms: int, key: bytes | None, value: bytes | None, headers: Headers
    ) -> None:
        """Files a record of the request topic."""
        columns = self.parts[part]
        columns.reach(offset)
        given = {name: content or b"" for name, content in headers if name.startswith(PREFIX)}
        kind = value[0] if value else RequestKind.DELIVER
        of = columns.of
        of["kind"][offset], of["asked_at"][offset] = kind, at_ms
        if kind in (RequestKind.DELIVER, RequestKind.BY_ID):
            of["due"][offset] = int(given[AT]) if AT in given else at_ms + int(given.get(DELAY, b"0"))
            data = tuple((name, content) for name, content in headers if not name.startswith(PREFIX))
            target_key = given.get(KEY, key)
            of["digest"][offset] = hash((given.get(TOPIC, b""), target_key, value, data, given.get(ID, b"")))
        if kind in (RequestKind.BY_ID, RequestKind.CONTROL):
            self.by_id[part, given[ID]].append(IdChange(offset, given.get(ACTION, b"").decode()))
        columns.end = max(columns.end, offset + 1)

    def file_delivered(
        self, topic: str, partition: int, place: int, key: bytes | None, value: bytes | None, headers: Headers
    ) -> None:
        """Files the record at offset `place` of a target's partition. Messages of one key in one partition form a
        queue."""
        data = tuple(header for header in headers if not header[0].startswith(PREFIX))
        ours = [(name, content or b"") for name, content in headers[len(data) :]]
        names = [name for name, _ in ours]
        if names not in ([ORIGIN, DUE], [ORIGIN, DUE, ID]):
            self.wrong.append(f"a record on {topic} with the headers {headers}")
            return
        columns, offset = self._row(ours[0][1])
        of = columns.of
        of["seen"][offset] = min(of["seen"][offset] + 1, 255)
        of["seen_due"][offset] = int(ours[1][1])
        of["queue"][offset], of["place"][offset] = hash((topic, partition, key)), place
        of["seen_digest"][offset] = hash((topic.encode(), key, value, data, ours[2][1] if len(ours) > 2 else b""))

    def file_dead_letter(self, headers: Headers) -> None:
        """Files a dead letter. If a header name occurs repeatedly, the last header counts."""
        last = {name: content or b"" for name, content in headers}
        columns, offset = self._row(last[ORIGIN])
        columns.of["dead"][offset] = min(columns.of["dead"][offset] + 1, 255)
        self.reasons[last[DEAD_REASON].decode()] += 1

    def file_log(self, part: int, offset: int, at_ms: int, value: bytes | None) -> None:
        """Files a record of the dispatch log. REQUIRES: the records of a partition come in order."""
        record = decode_record(value)
        if record.seq != self.seqs.get(part, 0) + 1:
            self.wrong.append(f"O6: partition {part} has seq {record.seq} after {self.seqs.get(part, 0)} at {offset}")
        self.seqs[part] = record.seq
        self.kinds[record.kind] += 1
        if record.kind == OWNER:
            self.owners.append((part, record.takeover, record.instance, at_ms))
        columns = self.parts[part]
        for fate in record.fates:
            columns.reach(fate.offset)
            if fate.name in FINAL:
                of = columns.of
                of["fate"][fate.offset] = FATES.index(fate.name)
                of["ends"][fate.offset] = min(of["ends"][fate.offset] + 1, 255)
                of["ended_at"][fate.offset], of["ended_in"][fate.offset] = at_ms, offset
                of["known"][fate.offset] = record.next_request
            elif fate.name == MOVED and isinstance(fate, Moved):
                columns.of["moved"][fate.offset] = fate.due_ms
                self.moves.add((part, fate.offset, fate.control))

    def file_verdict(self, part: int, value: bytes | None) -> None:
        """Files a record of the verdict topic."""
        answer = decode_verdict(value)
        origin_parts = parse_origin(answer.origin.encode())
        of = -1 if answer.of is None else parse_origin(answer.of.encode())[2]
        self.verdicts[part, origin_parts[2]].append((answer.verdict.value, of))

    def _row(self, origin: bytes) -> tuple[Columns, int]:
        topic, part, offset = parse_origin(origin)
        if topic != self.requests:
            self.wrong.append(f"a record whose origin {origin!r} is not of {self.requests}")
        columns = self.parts[part]
        columns.reach(offset)
        return columns, offset

    # ---- while the test runs ---------------------------------------------------------------------------------------

    def request_count(self) -> int:
        """Returns the number of requests filed so far."""
        with self.lock:
            return sum(int((columns.ints("kind", 0, columns.end) > 0).sum()) for columns in self.parts.values())

    def pending(self) -> int:
        """Returns the number of filed requests that have not ended."""
        with self.lock:
            count = 0
            for columns in self.parts.values():
                span = (columns.low, columns.end)
                count += int(((columns.ints("kind", *span) > 0) & (columns.ints("ends", *span) == 0)).sum())
            return count

    def holders(self) -> dict[int, str]:
        """Returns partition -> the instance that wrote the last owner record there."""
        with self.lock:
            return {part: instance for part, _, instance, _ in self.owners}

    def newest_ms(self) -> int:
        """Returns the broker's timestamp of the last filed request; 0 if there is none."""
        with self.lock:
            ends = [(columns.of["asked_at"], columns.end) for columns in self.parts.values() if columns.end]
            return max((asked_at[end - 1] for asked_at, end in ends), default=0)

    def overdue(self, now_ms: int) -> dict[int, int]:
        """Returns partition -> the number of requests that are more than `OVERDUE_MS` late; omits partitions without
        such requests."""
        found: dict[int, int] = {}
        with self.lock:
            for part, columns in self.parts.items():
                kind, ends = columns.ints("kind", columns.low), columns.ints("ends", columns.low)
                live = columns.end - columns.low
                over = (kind[:live] == 0) | (ends[:live] > 0)
                open_at = np.flatnonzero(~over)
                if len(open_at):
                    due = np.maximum(
                        columns.ints("due", columns.low)[open_at], columns.ints("moved", columns.low)[open_at]
                    )
                    due = np.maximum(due, columns.ints("asked_at", columns.low)[open_at])
                    late = int(np.sum((due < now_ms - OVERDUE_MS) & (kind[open_at] != RequestKind.DEAD)))
                    if late:
                        found[part] = late
                columns.low += int(open_at[0]) if len(open_at) else max(live, 0)
        return found

    def lateness(self) -> tuple[Ints, Ints]:
        """Returns for every delivered message the earliest permitted time of delivery, and its lateness relative to
        that time.

        The earliest time is the due time, or the timestamp of the request if that is later.
        """
        starts, lates = [], []
        with self.lock:
            for columns in self.parts.values():
                ended = columns.ints("ended_at")
                wanted = np.where(columns.ints("moved") >= 0, columns.ints("moved"), columns.ints("due"))
                wanted = np.maximum(wanted, columns.ints("asked_at"))
                chosen = (columns.ints("fate") == FATES.index("delivered")) & (columns.ints("due") >= 0)
                starts.append(wanted[chosen])
                lates.append((ended - wanted)[chosen])
        nothing: Ints = np.array([], dtype=np.int64)
        return np.concatenate([nothing, *starts]), np.concatenate([nothing, *lates])

    def outage_ms(self, begun_ms: int, ended_ms: int) -> tuple[int, int]:
        """Returns the maximum lateness of the messages delivered since `begun_ms`, counted from their due times, and
        the maximum counted from `ended_ms` for messages that were due before."""
        wanted, late = self.lateness()
        chosen = wanted + late >= begun_ms
        if not chosen.any():
            return 0, 0
        wanted, late = wanted[chosen], late[chosen]
        after = wanted + late - np.maximum(wanted, ended_ms)
        return int(late.max()), max(int(after.max()), 0)
