"""Goal: a long delay outlives its request and every disk: delivered once, at its time, and gone from the store after.

Method: real processes with `store_after_ms` 2 s. Messages due in some 15 s are accepted and stored; then the process is
killed, its data directory deleted, and the requests are deleted from the request topic up to the low-water mark that
the dispatch log carries. A second process starts with nothing. Controls act before and after. The oracle judges all
that Kafka holds, and the store must have compacted to nothing: the last value of every key is null.
"""

from __future__ import annotations

import shutil
import time

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from postdate.wire.dispatch_log import STORED, decode_record
from postdate.wire.headers import ACTION, AT, ID, TOPIC, Headers
from postdate.wire.headers import ORIGIN as NAMED
from postdate.wire.origins import format_origin
from postdate.wire.stored import decode_stored, stored_offset
from support.deployments.sidecar_deployment import SidecarDeployment
from support.deployments.sidecars import Sidecar
from support.oracles.exactly_once import Sent
from support.waiting.rounds import LONGER, expect, first_kept
from support.waiting.timeouts import WAIT_TIMEOUT_S

_MESSAGES = 400
_PARTITIONS = 2
_STORE_AFTER_MS = 2_000
#: ms. From the first request to the first due time: a kill and the loss of the disk lie in between.
_LEAD_MS = 7_000
_SPREAD_MS = 6_000


def _now_ms() -> int:
    return int(time.time() * 1000)


class _Play:
    """One request topic, what is sent to it, and what is read of its dispatch log and store."""

    def __init__(self, env: SidecarDeployment) -> None:
        self.env = env
        self.requests, self.target = env.new_requests(_PARTITIONS), env.new_target(_PARTITIONS)
        self.sender, self.told = env.sender(), list[Sent]()
        self.process = env.new_sidecar(static=True, topic={"store_after_ms": _STORE_AFTER_MS, "verdicts": "all"})
        self.process.start()
        self.process.wait_for_shards(_PARTITIONS)

    def schedule(self, number: int, due_ms: int, *more: tuple[str, bytes | None], value: bytes | None = b"v") -> Sent:
        given: Headers = [("n", b"%d" % number), (TOPIC, self.target.encode()), (AT, b"%d" % due_ms), *more]
        sent = Sent(self.target, b"%d" % (number % 31), value, given, due_ms)
        return self.sender.send(self.requests, sent, number % _PARTITIONS)

    def control(self, action: bytes, of: Sent, *more: tuple[str, bytes | None]) -> Sent:
        partition = int(of.origin.split(b"/")[1])
        sent = Sent("", b"", b"", [(ACTION, action), *more])
        return self.sender.send(self.requests, sent, partition)

    def wait_for_stored(self, count: int) -> None:
        """Returns when the dispatch log says of `count` requests that they are stored."""
        reader, stored = self.env.reader(f"{self.requests}.dispatch-log"), set[tuple[int, int]]()
        taken = 0

        def enough() -> bool:
            nonlocal taken
            for seen in reader.records[taken:]:
                fates = decode_record(seen.value).fates
                stored.update((seen.partition, fate.offset) for fate in fates if fate.name == STORED)
            taken = len(reader.records)
            return len(stored) >= count

        try:
            reader.until(enough, f"{count} requests are stored; see {self.env.directory}")
        finally:
            reader.close()

    def tell_low_water(self) -> None:
        """Has each shard write one more record, which carries the low-water mark that the ones before it made."""
        nobody: Headers = [(ACTION, b"cancel"), (ID, b"nobody")]
        told = [self.sender.send(self.requests, Sent("", b"", b"", nobody), part) for part in range(_PARTITIONS)]
        self.sender.flush()
        self.told += told
        reader = self.env.reader(f"{self.requests}.dispatch-log")

        def applied() -> bool:
            fates = {
                format_origin(self.requests, seen.partition, fate.offset)
                for seen in reader.records
                for fate in decode_record(seen.value).fates
            }
            return all(sent.origin in fates for sent in told)

        try:
            reader.until(applied, f"each shard has written once more; see {self.env.directory}")
        finally:
            reader.close()

    def lose_everything(self) -> dict[int, int]:
        """Kills the process, deletes its disk and every request below the low-water mark; returns these marks."""
        self.tell_low_water()
        self.process.kill()
        shutil.rmtree(self.process.data_dir)
        log = self.env.reader(f"{self.requests}.dispatch-log")
        marks = {seen.partition: decode_record(seen.value).low_water for seen in log.to_end()}
        log.close()
        admin = AdminClient({"bootstrap.servers": self.env.bootstrap})
        before = [TopicPartition(self.requests, partition, low) for partition, low in marks.items()]
        for part, done in admin.delete_records(before).items():
            assert done.result(WAIT_TIMEOUT_S).low_watermark == marks[part.partition]
        return marks

    def restart(self) -> None:
        self.process.start()
        self.process.wait_for_shards(_PARTITIONS)

    def judge_store(self) -> int:
        """Fails unless every key ends with a tombstone; returns how many records say what is kept."""
        reader, last, kept = self.env.reader(f"{self.requests}.store"), dict[tuple[int, int], bytes | None](), 0
        for seen in reader.to_end():
            last[(seen.partition, stored_offset(seen.key))] = seen.value
            if seen.value is not None:
                kept += 1
                decode_stored(seen.key, seen.value, seen.headers)
        reader.close()
        alive = sorted(key for key, value in last.items() if value is not None)
        assert not alive, f"{len(alive)} ended requests are still kept, among them {alive[:5]}"
        assert last, "nothing was stored: the run proves nothing"
        return kept


def _assert_quiet(process: Sidecar) -> None:
    assert "HALTED" not in process.all_logs()
    assert "Traceback" not in process.all_logs()


def test_stored_messages_outlive_their_requests_and_the_disk(env: SidecarDeployment) -> None:
    first_kept(lambda slower: _outlive(_Play(env.another()), _LEAD_MS * slower), LONGER)


def _outlive(play: _Play, lead_ms: int) -> None:
    first_due_ms = _now_ms() + lead_ms
    asked = [
        play.schedule(number, first_due_ms + number * _SPREAD_MS // _MESSAGES, value=None if number % 50 == 7 else b"v")
        for number in range(_MESSAGES)
    ]
    play.sender.flush()
    play.wait_for_stored(_MESSAGES)
    marks = play.lose_everything()
    assert sum(marks.values()) > _MESSAGES * 0.9, f"the low-water mark does not pass what is stored: {marks}"
    expect(_now_ms() < first_due_ms, "the disk was lost after the first due time")
    play.restart()
    assert "rebuilding from" in play.process.log_text()
    play.env.wait_for_ends(_MESSAGES + len(play.told))
    assert play.process.stop() == 0
    outcome = play.env.judge(asked, silent=play.told)
    late_ms = sorted(outcome.fates[sent.origin][0][1] - sent.due_ms for sent in asked)
    print(f"low-water marks {marks}; lateness ms p50 {late_ms[len(late_ms) // 2]}, most {late_ms[-1]}")
    assert play.judge_store() == _MESSAGES
    _assert_quiet(play.process)


def test_controls_find_a_stored_message_before_and_after_the_disk_is_lost(env: SidecarDeployment) -> None:
    first_kept(lambda slower: _control(_Play(env.another()), _LEAD_MS * slower), LONGER)


def _control(play: _Play, lead_ms: int) -> None:
    due_ms = _now_ms() + lead_ms
    asked = [play.schedule(number, due_ms, (ID, b"id-%d" % number)) for number in range(40)]
    play.sender.flush()
    play.wait_for_stored(40)
    moved_ms = due_ms + 2_000
    early = play.control(b"reschedule", asked[0], (ID, b"id-0"), (AT, b"%d" % moved_ms))
    early_cancel = play.control(b"cancel", asked[1], (ID, b"id-1"))
    play.sender.flush()
    play.env.wait_for_ends(3)
    marks = play.lose_everything()
    assert sum(marks.values()) > 35, f"the low-water mark does not pass what is stored: {marks}"
    cancelled = [play.control(b"cancel", asked[n], (ID, b"id-%d" % n)) for n in range(2, 10)]
    cancelled += [play.control(b"cancel", asked[n], (NAMED, asked[n].origin)) for n in range(10, 20)]
    moved = [play.control(b"reschedule", asked[n], (ID, b"id-%d" % n), (AT, b"%d" % moved_ms)) for n in range(20, 30)]
    replacing = [play.schedule(n, moved_ms, (ID, b"id-%d" % n)) for n in range(30, 34)]
    play.sender.flush()
    expect(_now_ms() < due_ms, "the disk was lost, and the controls written, after the due time")
    play.restart()
    silent = [*play.told, early, early_cancel, *asked[1:20], *cancelled, *moved, *asked[30:34]]
    for sent in [asked[0], *asked[20:30]]:
        sent.due_ms = moved_ms
    expected = [asked[0], *asked[20:30], *replacing, *asked[34:]]
    play.env.wait_for_ends(len(silent) + len(expected))
    assert play.process.stop() == 0
    play.env.judge(expected, silent=silent)
    play.judge_store()
    _assert_quiet(play.process)


def test_a_disk_lost_again_and_again_loses_nothing(env: SidecarDeployment) -> None:
    """Each start is an empty one, from the store that the one before it left; some messages end in between."""
    play = _Play(env)
    first_due_ms = _now_ms() + 4_000
    asked = [play.schedule(number, first_due_ms + number * 16_000 // _MESSAGES) for number in range(_MESSAGES)]
    play.sender.flush()
    play.wait_for_stored(_MESSAGES * 9 // 10)
    for _ in range(3):
        play.lose_everything()
        play.restart()
    play.env.wait_for_ends(_MESSAGES + len(play.told))
    assert play.process.stop() == 0
    env.judge(asked, silent=play.told)
    play.judge_store()
    _assert_quiet(play.process)
