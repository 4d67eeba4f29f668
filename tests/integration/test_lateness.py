"""Goal: a thousand messages a second arrive within milliseconds of their time.

Method: a thread asks for one message each millisecond, due a second later, for some seconds; a read_committed reader in
the main thread notes when each arrives. Producer, broker and consumer share the machine with the sidecar, and whoever
else is at work there: the bounds are several times what a quiet machine shows, a round in which others were at work is
played again, and where a thousand a second are too many for the machine, fewer; the figures are printed.
"""

from __future__ import annotations

import threading
import time

from postdate.connectors.wire.headers import AT, TOPIC, Headers
from support.bed import Bed
from support.oracle import Sent
from support.rounds import LIGHTER, expect, first_kept

_PER_SECOND = 1_000
_SECONDS = 6
_P50_MS_MAX = 60.0
_P99_MS_MAX = 400.0


def _ask(bed: Bed, requests: str, target: str, per_second: int, asked: list[Sent]) -> None:
    sender, first = bed.sender(), time.time()
    pause = threading.Event()
    for index in range(per_second * _SECONDS):
        pause.wait(max(first + index / per_second - time.time(), 0.0) if index % 10 == 0 else 0.0)
        due_ms = int((first + index / per_second) * 1000) + 1000
        given: Headers = [(TOPIC, target.encode()), (AT, b"%d" % due_ms)]
        asked.append(sender.send(requests, Sent(target, b"%d" % index, b"x" * 200, given, due_ms)))
    sender.flush()


def test_a_thousand_a_second_arrive_within_milliseconds(bed: Bed) -> None:
    requests, target = bed.new_requests(2), bed.new_target(2)
    sidecar = bed.new_sidecar()
    sidecar.start()
    sidecar.wait_for_shards(2)
    reader, every = bed.reader(target), list[Sent]()
    reader.take(1.0)

    def play(slower: int) -> None:
        per_second, before, asked = _PER_SECOND // slower, len(every), list[Sent]()
        asking = threading.Thread(target=_ask, args=(bed, requests, target, per_second, asked))
        asking.start()
        count = before + per_second * _SECONDS
        reader.until(lambda: len(reader.records) >= count, "all arrive")
        asking.join()
        every.extend(asked)
        due = {sent.origin: sent.due_ms for sent in asked}
        late = sorted(seen.arrived_ms - due[seen.origin] for seen in reader.records[before:])
        p50, p99, p999 = (late[int(len(late) * share)] for share in (0.5, 0.99, 0.999))
        told = f"{per_second} a second, ms late: p50 {p50:.1f}, p99 {p99:.1f}, p99.9 {p999:.1f}, most {late[-1]:.1f}"
        print(told)
        expect(p50 <= _P50_MS_MAX and p99 <= _P99_MS_MAX, told)

    try:
        first_kept(play, LIGHTER)
    finally:
        reader.close()
    bed.wait_for_ends(len(every))
    outcome = bed.judge(every)
    print(f"{len(outcome.log)} transactions")
