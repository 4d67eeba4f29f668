"""Goal: a message with a long delay survives the loss of its request and of every disk. It is delivered once, at its
due time, and then leaves the store.

Method: real processes with `store_after_ms` 2 s accept and store messages that are due after several seconds. Then the
process is killed, its data directory is deleted, and the requests below the low-water mark of the dispatch log are
deleted from the request topic. A second process starts without a disk. Controls come before and after the loss. The
oracle checks all records that Kafka holds. In the store, the last value of every key must be null, so compaction leaves
nothing.
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
from support.waiting.rounds import LONGER, expect, first_round_in_time
from support.waiting.timeouts import WAIT_TIMEOUT_S

_MESSAGES = 400
_PARTITIONS = 2
_STORE_AFTER_MS = 2_000
#: Milliseconds: from the first request to the first due time. The kill and the loss of the disk come in between.
_LEAD_MS = 7_000
_SPREAD_MS = 6_000


def _now_ms() -> int:
    return int(time.time() * 1000)


class _Scenario:
    """One request topic and its process. The methods send requests, lose the disk, and read the log and the store."""

    def __init__(self, deployment: SidecarDeployment) -> None:
        self.deployment = deployment
        self.requests, self.target = deployment.new_requests(_PARTITIONS), deployment.new_target(_PARTITIONS)
        self.sender, self.no_ops = deployment.sender(), list[Sent]()
        self.process = deployment.new_sidecar(static=True, topic={"store_after_ms": _STORE_AFTER_MS, "verdicts": "all"})
        self.process.start()
        self.process.wait_for_shards(_PARTITIONS)

    def schedule(self, number: int, due_ms: int, *more: tuple[str, bytes | None], value: bytes | None = b"v") -> Sent:
        headers: Headers = [("n", b"%d" % number), (TOPIC, self.target.encode()), (AT, b"%d" % due_ms), *more]
        sent = Sent(self.target, b"%d" % (number % 31), value, headers, due_ms)
        return self.sender.send(self.requests, sent, number % _PARTITIONS)

    def control(self, action: bytes, controlled: Sent, *more: tuple[str, bytes | None]) -> Sent:
        partition = int(controlled.origin.split(b"/")[1])
        sent = Sent("", b"", b"", [(ACTION, action), *more])
        return self.sender.send(self.requests, sent, partition)

    def wait_for_stored(self, count: int) -> None:
        """Returns when the dispatch log marks `count` requests as stored."""
        reader, stored = self.deployment.reader(f"{self.requests}.dispatch-log"), set[tuple[int, int]]()
        read = 0

        def enough() -> bool:
            nonlocal read
            for seen in reader.records[read:]:
                fates = decode_record(seen.value).fates
                stored.update((seen.partition, fate.offset) for fate in fates if fate.name == STORED)
            read = len(reader.records)
            return len(stored) >= count

        try:
            reader.until(enough, f"{count} requests are stored; see {self.deployment.directory}")
        finally:
            reader.close()

    def write_low_water(self) -> None:
        """Makes each shard write one more record, whose low-water mark covers the records before it."""
        nobody: Headers = [(ACTION, b"cancel"), (ID, b"nobody")]
        no_ops = [self.sender.send(self.requests, Sent("", b"", b"", nobody), part) for part in range(_PARTITIONS)]
        self.sender.flush()
        self.no_ops += no_ops
        reader = self.deployment.reader(f"{self.requests}.dispatch-log")

        def applied() -> bool:
            fates = {
                format_origin(self.requests, seen.partition, fate.offset)
                for seen in reader.records
                for fate in decode_record(seen.value).fates
            }
            return all(sent.origin in fates for sent in no_ops)

        try:
            reader.until(applied, f"each shard writes one more record; see {self.deployment.directory}")
        finally:
            reader.close()

    def lose_everything(self) -> dict[int, int]:
        """Kills the process, and deletes its disk and every request below the low-water marks, which it returns."""
        self.write_low_water()
        self.process.kill()
        shutil.rmtree(self.process.data_dir)
        log = self.deployment.reader(f"{self.requests}.dispatch-log")
        marks = {seen.partition: decode_record(seen.value).low_water for seen in log.to_end()}
        log.close()
        admin = AdminClient({"bootstrap.servers": self.deployment.bootstrap})
        deleted = [TopicPartition(self.requests, partition, low) for partition, low in marks.items()]
        for part, future in admin.delete_records(deleted).items():
            assert future.result(WAIT_TIMEOUT_S).low_watermark == marks[part.partition]
        return marks

    def restart(self) -> None:
        self.process.start()
        self.process.wait_for_shards(_PARTITIONS)

    def judge_store(self) -> int:
        """Fails unless every key ends with a tombstone. Returns the number of other records."""
        reader, last, kept = self.deployment.reader(f"{self.requests}.store"), dict[tuple[int, int], bytes | None](), 0
        for seen in reader.to_end():
            last[(seen.partition, stored_offset(seen.key))] = seen.value
            if seen.value is not None:
                kept += 1
                decode_stored(seen.key, seen.value, seen.headers)
        reader.close()
        alive = sorted(key for key, value in last.items() if value is not None)
        assert not alive, f"{len(alive)} ended requests are still stored, among them {alive[:5]}"
        assert last, "nothing was stored: the run proves nothing"
        return kept


def _assert_quiet(process: Sidecar) -> None:
    assert "HALTED" not in process.all_logs()
    assert "Traceback" not in process.all_logs()


def test_stored_messages_outlive_their_requests_and_the_disk(deployment: SidecarDeployment) -> None:
    first_round_in_time(lambda slower: _outlive(_Scenario(deployment.another()), _LEAD_MS * slower), LONGER)


def _outlive(scenario: _Scenario, lead_ms: int) -> None:
    first_due_ms = _now_ms() + lead_ms
    requested = [
        scenario.schedule(
            number, first_due_ms + number * _SPREAD_MS // _MESSAGES, value=None if number % 50 == 7 else b"v"
        )
        for number in range(_MESSAGES)
    ]
    scenario.sender.flush()
    scenario.wait_for_stored(_MESSAGES)
    marks = scenario.lose_everything()
    assert sum(marks.values()) > _MESSAGES * 0.9, f"the low-water mark stays below stored requests: {marks}"
    expect(_now_ms() < first_due_ms, "the disk was lost after the first due time")
    scenario.restart()
    assert "rebuilding from" in scenario.process.log_text()
    scenario.deployment.wait_for_ends(_MESSAGES + len(scenario.no_ops))
    assert scenario.process.stop() == 0
    outcome = scenario.deployment.judge(requested, silent=scenario.no_ops)
    late_ms = sorted(outcome.fates[sent.origin][0][1] - sent.due_ms for sent in requested)
    print(f"low-water marks {marks}; lateness ms p50 {late_ms[len(late_ms) // 2]}, most {late_ms[-1]}")
    assert scenario.judge_store() == _MESSAGES
    _assert_quiet(scenario.process)


def test_controls_find_a_stored_message_before_and_after_the_disk_is_lost(deployment: SidecarDeployment) -> None:
    first_round_in_time(lambda slower: _control(_Scenario(deployment.another()), _LEAD_MS * slower), LONGER)


def _control(scenario: _Scenario, lead_ms: int) -> None:
    due_ms = _now_ms() + lead_ms
    requested = [scenario.schedule(number, due_ms, (ID, b"id-%d" % number)) for number in range(40)]
    scenario.sender.flush()
    scenario.wait_for_stored(40)
    moved_ms = due_ms + 2_000
    early = scenario.control(b"reschedule", requested[0], (ID, b"id-0"), (AT, b"%d" % moved_ms))
    early_cancel = scenario.control(b"cancel", requested[1], (ID, b"id-1"))
    scenario.sender.flush()
    scenario.deployment.wait_for_ends(3)
    marks = scenario.lose_everything()
    assert sum(marks.values()) > 35, f"the low-water mark stays below stored requests: {marks}"
    cancelled = [scenario.control(b"cancel", requested[n], (ID, b"id-%d" % n)) for n in range(2, 10)]
    cancelled += [scenario.control(b"cancel", requested[n], (NAMED, requested[n].origin)) for n in range(10, 20)]
    moved_at = (AT, b"%d" % moved_ms)
    moved = [scenario.control(b"reschedule", requested[n], (ID, b"id-%d" % n), moved_at) for n in range(20, 30)]
    replacing = [scenario.schedule(n, moved_ms, (ID, b"id-%d" % n)) for n in range(30, 34)]
    scenario.sender.flush()
    expect(_now_ms() < due_ms, "the disk was lost, and the controls written, after the due time")
    scenario.restart()
    silent = [*scenario.no_ops, early, early_cancel, *requested[1:20], *cancelled, *moved, *requested[30:34]]
    for sent in [requested[0], *requested[20:30]]:
        sent.due_ms = moved_ms
    expected = [requested[0], *requested[20:30], *replacing, *requested[34:]]
    scenario.deployment.wait_for_ends(len(silent) + len(expected))
    assert scenario.process.stop() == 0
    scenario.deployment.judge(expected, silent=silent)
    scenario.judge_store()
    _assert_quiet(scenario.process)


def test_a_disk_lost_again_and_again_loses_nothing(deployment: SidecarDeployment) -> None:
    """Each start begins with an empty disk and the store of the run before. Some messages end in between."""
    scenario = _Scenario(deployment)
    first_due_ms = _now_ms() + 4_000
    requested = [scenario.schedule(number, first_due_ms + number * 16_000 // _MESSAGES) for number in range(_MESSAGES)]
    scenario.sender.flush()
    scenario.wait_for_stored(_MESSAGES * 9 // 10)
    for _ in range(3):
        scenario.lose_everything()
        scenario.restart()
    scenario.deployment.wait_for_ends(_MESSAGES + len(scenario.no_ops))
    assert scenario.process.stop() == 0
    deployment.judge(requested, silent=scenario.no_ops)
    scenario.judge_store()
    _assert_quiet(scenario.process)
