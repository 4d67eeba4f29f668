"""Samples of the formats that this version writes, kept in `tests/samples`: later versions must be able to read them.

`python -m support.shards.format_samples` writes the samples of the current format versions. Run it once for each new
version, and keep the samples of older versions: an existing sample never changes.
"""

from __future__ import annotations

import subprocess
import tarfile
import tempfile
from pathlib import Path

import msgspec

from postdate.wheel.entry import Entry, Kind, Mark, encode_entry, pack_stripped
from postdate.wheel.index import TimerIndex
from postdate.wheel.keys import entry_key
from postdate.wheel.options import IndexOptions
from postdate.wheel.timer_log.changes import EntryChanges
from postdate.wheel.timer_log.identity import Identity
from postdate.wire.dispatch_log import (
    AcceptedLoss,
    Backfilled,
    BulkCancelled,
    BulkProgress,
    ChosenFate,
    Completed,
    DispatchRecord,
    ExtraFate,
    Moved,
    Occurred,
    PausedOrResumed,
    PlainFate,
    SeriesFate,
    Skipped,
    SurvivorFate,
    Triggered,
    encode_record,
)
from postdate.wire.headers import Headers
from postdate.wire.stored import StoredRequest, encode_stored
from postdate.wire.verdicts import Verdict, VerdictRecord, encode_bulk_verdict, encode_verdict
from support.repository import TESTS

SAMPLES = TESTS / "samples"
DISPATCH_LOG = SAMPLES / "dispatch-log-1.jsonl"
DISPATCH_LOG_2 = SAMPLES / "dispatch-log-2.jsonl"
DISPATCH_LOG_3 = SAMPLES / "dispatch-log-3.jsonl"
VERDICTS = SAMPLES / "verdicts-1.jsonl"
VERDICTS_2 = SAMPLES / "verdicts-2.jsonl"
VERDICTS_3 = SAMPLES / "verdicts-3.jsonl"
STORE = SAMPLES / "store-1.jsonl"
STORE_2 = SAMPLES / "store-2.jsonl"
STORE_3 = SAMPLES / "store-3.jsonl"
TIMER_LOG = SAMPLES / "timer-log-2.tar.gz"

NOW_MS = 1_795_258_284_000
IDENTITY = Identity("cluster", "requests-id", "dispatch-log-id", 3, "store-id")

RECORDS = [
    DispatchRecord(
        seq=1, takeover=1, instance="postdate-0", group="postdate", at=NOW_MS, next_request=0, low_water=0,
        kind="owner", accepted=[AcceptedLoss("requests-lost", "postdate.requests", 3, 9)],
    ),
    DispatchRecord(
        seq=2, takeover=1, instance="postdate-0", group="postdate", at=NOW_MS, next_request=2_040, low_water=990,
        fates=[
            PlainFate(1_017, NOW_MS, "delivered"), PlainFate(1_020, NOW_MS, "dead"),
            PlainFate(1_021, NOW_MS, "cancelled"), PlainFate(1_022, 1, "replaced"),
            Moved(990, NOW_MS, "moved", NOW_MS + 9, 1_018), PlainFate(1_018, 0, "applied"),
            PlainFate(1_030, NOW_MS + 9, "stored"),
        ],
    ),
    DispatchRecord(
        seq=3, takeover=1, instance="postdate-0", group="postdate", at=NOW_MS, next_request=2_040, low_water=990,
        kind="beat",
    ),
]  # fmt: skip

RECORDS_2 = [
    DispatchRecord(
        seq=4, takeover=2, instance="postdate-0", group="postdate", at=NOW_MS, next_request=2_040, low_water=990,
        kind="owner",
        policies=[(0, "orders", "base=1s, factor=2, max=1h, attempts=12, jitter=20%"), (2_040, "orders", "")],
    ),
    DispatchRecord(
        seq=5, takeover=2, instance="postdate-0", group="postdate", at=NOW_MS, next_request=2_040, low_water=990,
        fates=[
            ChosenFate(1_031, NOW_MS, "delivered", NOW_MS + 7), ChosenFate(1_032, NOW_MS, "dead", NOW_MS),
            PlainFate(1_033, NOW_MS, "delivered"),
        ],
    ),
    DispatchRecord(
        seq=6, takeover=2, instance="postdate-0", group="postdate", at=NOW_MS, next_request=2_040, low_water=990,
        fates=[BulkCancelled(1_034, NOW_MS, "cancelled", 1_040), BulkProgress(1_040, 0, "swept", 1)],
    ),
    DispatchRecord(
        seq=7, takeover=2, instance="postdate-0", group="postdate", at=NOW_MS, next_request=2_040, low_water=990,
        fates=[BulkProgress(1_040, 0, "applied", 1)],
    ),
    DispatchRecord(
        seq=8, takeover=2, instance="postdate-0", group="postdate", at=NOW_MS, next_request=2_040, low_water=990,
        fates=[
            SurvivorFate(1_034, NOW_MS, "replaced", 1_036), SurvivorFate(1_035, NOW_MS, "kept", 1_030),
            SeriesFate(1_037, NOW_MS, "replaced", 1_040, NOW_MS - 9), Moved(1_041, NOW_MS, "moved", NOW_MS + 9, 1_042),
        ],
    ),
    DispatchRecord(
        seq=9, takeover=2, instance="postdate-0", group="postdate", at=NOW_MS, next_request=2_040, low_water=990,
        fates=[PlainFate(1_043, NOW_MS, "delivered"), SurvivorFate(1_044, NOW_MS, "dropped", 1_030)],
        ids=[(1_043, "5pzPoZwH6UfJ4YOOvBaShg")],
    ),
]  # fmt: skip

RECORDS_3 = [
    DispatchRecord(
        seq=6, takeover=3, instance="postdate-0", group="postdate", at=NOW_MS, next_request=2_041, low_water=2_040,
        fates=[
            Occurred(1_040, NOW_MS, "occurred", 1, NOW_MS, NOW_MS + 60_000),
            Skipped(1_040, NOW_MS, "skipped", 2, 9, "missed", NOW_MS + 540_000),
            Occurred(1_041, NOW_MS, "occurred", 3, NOW_MS, 0), Completed(1_041, NOW_MS, "completed"),
            ChosenFate(1_042, NOW_MS, "delivered", NOW_MS + 7), PlainFate(1_043, NOW_MS, "delivered"),
        ],
    ),
    DispatchRecord(
        seq=7, takeover=3, instance="postdate-0", group="postdate", at=NOW_MS, next_request=2_041, low_water=2_040,
        fates=[
            PausedOrResumed(1_040, NOW_MS, "paused", NOW_MS + 9, 1_050),
            PausedOrResumed(1_040, NOW_MS, "resumed", NOW_MS, 1_051),
        ],
    ),
    DispatchRecord(
        seq=8, takeover=3, instance="postdate-0", group="postdate", at=NOW_MS, next_request=2_041, low_water=2_040,
        fates=[
            Triggered(1_040, NOW_MS, "triggered", NOW_MS + 9, 1_052),
            ExtraFate(1_040, NOW_MS, "extra", 1_052, 1, NOW_MS + 9, 0),
            ExtraFate(1_040, NOW_MS, "extra-dead", 1_053, 2, NOW_MS + 9, NOW_MS + 99),
        ],
    ),
    DispatchRecord(
        seq=9, takeover=3, instance="postdate-0", group="postdate", at=NOW_MS, next_request=2_041, low_water=2_040,
        fates=[
            Backfilled(1_040, NOW_MS, "backfilled", NOW_MS + 9, 1_054, NOW_MS - 60_000, NOW_MS),
            ExtraFate(1_040, NOW_MS, "extra", 1_054, 1, NOW_MS - 60_000, NOW_MS),
        ],
    ),
]  # fmt: skip

ANSWERS = [
    VerdictRecord(verdict=verdict, origin="R/3/1017", id="order-9", of="R/3/990", at_ms=NOW_MS)
    for verdict in (Verdict.CANCELLED, Verdict.TOO_LATE)
]

ANSWERS_2 = [
    VerdictRecord(verdict=Verdict.APPLIED, origin="R/3/1040", id=None, of=None, at_ms=NOW_MS, count=17),
    VerdictRecord(verdict=Verdict.KEPT, origin="R/3/1017", id="order-9", of=None, at_ms=NOW_MS, by="R/3/990"),
    VerdictRecord(verdict=Verdict.REPLACED, origin="R/3/1017", id="order-9", of=None, at_ms=NOW_MS, by="R/3/990"),
    VerdictRecord(verdict=Verdict.DROPPED, origin="R/3/1044", id="order-9", of=None, at_ms=NOW_MS, by="R/3/1030"),
]

ANSWERS_3 = [
    VerdictRecord(verdict=verdict, origin="R/3/1050", id="order-9", of="R/3/1040", at_ms=NOW_MS)
    for verdict in (Verdict.PAUSED, Verdict.RESUMED, Verdict.TRIGGERED, Verdict.BACKFILLED)
]

STORED = [
    StoredRequest(
        offset=17, accepted_ms=NOW_MS, first_due_ms=NOW_MS, due_ms=NOW_MS + 9, target="orders", key=b"k",
        own_key=b"own", value=None, headers=[("h", b"x"), ("h", None)], stripped=[(0, "postdate-topic", b"orders")],
        partition=-1, id=b"order-9", grace_ms=-1,
    )
]  # fmt: skip

STORED_2 = [
    msgspec.structs.replace(STORED[0], window_ms=900_000, chosen_ms=NOW_MS + 700_009),
    msgspec.structs.replace(STORED[0], window_ms=900_000, chosen_ms=NOW_MS + 9, is_even=True),
    msgspec.structs.replace(STORED[0], series_ms=NOW_MS - 9),
]

STORED_3 = [
    msgspec.structs.replace(STORED[0], number=7, chosen_ms=NOW_MS + 11, tz="2026f"),
    msgspec.structs.replace(STORED[0], number=7, chosen_ms=2**63 - 1, tz="2026f", switches=((1_050, NOW_MS, True),)),
    msgspec.structs.replace(
        STORED[0], number=7, due_ms=0, chosen_ms=NOW_MS, tz="2026f", extras=((1_052, 1, NOW_MS, NOW_MS, NOW_MS),)
    ),
    msgspec.structs.replace(
        STORED[0], number=7, chosen_ms=NOW_MS, tz="2026f", extras=((1_054, 2, NOW_MS - 60_000, NOW_MS, NOW_MS),)
    ),
]

ENTRIES = {
    entry_key(NOW_MS, 7): Entry(
        kind=Kind.DELIVER, stored=False, first_due=NOW_MS, due=NOW_MS, target="orders", key=b"k", value=b"v",
        headers=[("h", b"x"), ("h", None)], partition=2, id=b"order-9", grace_ms=5_000, own_key=(b"own",),
        stripped=pack_stripped([(0, "postdate-topic", b"orders")]), accepted_ms=NOW_MS - 5,
    ),
    entry_key(NOW_MS + 1, 8): Entry(Kind.DELIVER, True, NOW_MS, NOW_MS + 1, "orders", None, None, []),
    entry_key(0, 9): Entry(Kind.DEAD, False, 0, 0, "", None, b"v", [], reason="bad-time", detail="why"),
}  # fmt: skip
MARKS = {12: Mark(True, False, -1, True), 13: Mark(False, True, NOW_MS)}


def lines(path: Path) -> list[bytes]:
    """Returns the records of a sample, one on each line."""
    return path.read_bytes().splitlines()


def verdict_line(answer: VerdictRecord) -> bytes:
    """Returns the record of a verdict."""
    if answer.count is not None:
        return encode_bulk_verdict(answer.origin.encode(), answer.count, answer.at_ms)
    origin, id, of, by = ((text or "").encode() for text in (answer.origin, answer.id, answer.of, answer.by))
    return encode_verdict(answer.verdict, origin, id, of, answer.at_ms, by)[1]


def stored_line(request: StoredRequest) -> bytes:
    """Returns the record of a stored request: key, value and headers, with bytes as base64."""
    return msgspec.json.encode(encode_stored(request))


def stored_record(line: bytes) -> tuple[bytes, bytes, Headers]:
    """Returns the inverse of `stored_line`."""
    return msgspec.json.decode(line, type=tuple[bytes, bytes, list[tuple[str, bytes | None]]])


def unpack(sample: Path, directory: Path) -> None:
    """Unpacks the timer index of a sample into a directory."""
    directory.mkdir(parents=True, exist_ok=True)
    subprocess.run(["tar", "-xzf", sample, "-C", directory], check=True)  # some releases of 3.11 lack tarfile filters


def write_timer_log(directory: Path) -> None:
    """Writes the timer index with ENTRIES and MARKS, but without its wheel, which is invalid on every other machine."""
    index = TimerIndex.open(directory, IDENTITY, IndexOptions(), NOW_MS)
    changes = EntryChanges()
    for key, entry in ENTRIES.items():
        changes.insert(key, encode_entry(entry), entry.stored)
    changes.ids[b"order-9"] = entry_key(NOW_MS, 7)
    changes.marks |= MARKS
    changes.next_request, changes.next_dispatch, changes.seq, changes.takeover = 10, 4, 3, 1
    index.write(changes)
    index.sync()
    index.close()


def _of_nobody(file: tarfile.TarInfo) -> tarfile.TarInfo:
    """Removes owner and time from an archive member."""
    file.uid = file.gid = file.mtime = 0
    file.uname = file.gname = ""
    return file


def main() -> None:
    """Writes the samples of the current versions."""
    SAMPLES.mkdir(exist_ok=True)
    DISPATCH_LOG.write_bytes(b"".join(encode_record(record) + b"\n" for record in RECORDS))
    DISPATCH_LOG_2.write_bytes(b"".join(encode_record(record) + b"\n" for record in RECORDS_2))
    DISPATCH_LOG_3.write_bytes(b"".join(encode_record(record) + b"\n" for record in RECORDS_3))
    STORE_3.write_bytes(b"".join(stored_line(request) + b"\n" for request in STORED_3))
    VERDICTS.write_bytes(b"".join(verdict_line(answer) + b"\n" for answer in ANSWERS))
    VERDICTS_2.write_bytes(b"".join(verdict_line(answer) + b"\n" for answer in ANSWERS_2))
    VERDICTS_3.write_bytes(b"".join(verdict_line(answer) + b"\n" for answer in ANSWERS_3))
    STORE.write_bytes(b"".join(stored_line(request) + b"\n" for request in STORED))
    STORE_2.write_bytes(b"".join(stored_line(request) + b"\n" for request in STORED_2))
    with tempfile.TemporaryDirectory() as made:
        write_timer_log(Path(made))
        with tarfile.open(TIMER_LOG, "w:gz") as packed:
            for path in sorted(Path(made, "log").iterdir()):
                if not path.name.startswith(("LOG", "OPTIONS")):  # unnecessary, and they contain paths of this machine
                    packed.add(path, f"log/{path.name}", filter=_of_nobody)


if __name__ == "__main__":
    main()
