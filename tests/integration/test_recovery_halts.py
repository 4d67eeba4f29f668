"""Goal: a shard that would lose or repeat a message halts, names the reason and the loss, and continues after an
operator accepts the loss. The other shards of its process deliver meanwhile.

Method: one process serves a request topic for each kind of damage, and an undamaged one. It delivers some messages of
each, keeps others pending, stores some, and is stopped. Then each topic, or the index of its shard, is damaged as only
an administrator or a disaster can: requests or fates are deleted, a log is truncated, a topic is created again, or
another program writes into the dispatch log. The process starts again. `postdate shard status` must show each halt with
its range, and `postdate shard resume` or `rebuild` must end it. At last the test makes all pending messages due. Each
message that was not given up must arrive exactly once, before or after the damage. No message that was given up may
arrive.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from postdate.kafka.client import ConfluentKafka
from postdate.kafka.interface import Admin, Isolation, Partition
from postdate.kafka.settings import KafkaSettings
from postdate.sidecar.operation.shard_directories import find_shards
from postdate.sidecar.states import State
from postdate.wheel.index import TimerIndex
from postdate.wheel.options import IndexOptions
from postdate.wheel.timer_log.changes import EntryChanges
from postdate.wheel.timer_log.identity import Identity
from postdate.wire.dispatch_log import BEAT, DispatchRecord, encode_record
from postdate.wire.headers import ACTION, AT, ORIGIN, TOPIC
from postdate.wire.topics import OwnTopics
from support.brokers.topic_changes import delete_records
from support.deployments.command import command_output, run_postdate
from support.deployments.sidecar_deployment import SidecarDeployment
from support.deployments.sidecars import Sidecar, wait_until
from support.oracles.exactly_once import Sender, Sent, gather
from support.waiting.timeouts import WAIT_TIMEOUT_S

_SOON, _LATER, _STORED, _UNREAD = 3, 3, 2, 2
_READ = _SOON + _LATER + _STORED
_FILLED = 20
_LATER_MS, _STORED_MS = 1_800_000, 4 * 3_600_000
_USAGE = 2


@dataclass
class Scenario:
    """One request topic, its requests, and the end that each of them must have."""

    deployment: SidecarDeployment
    name: str
    requests: str
    target: str
    sender: Sender
    admin: Admin
    delivered: list[Sent] = field(default_factory=list)
    later: list[Sent] = field(default_factory=list)
    stored: list[Sent] = field(default_factory=list)
    given_up: list[Sent] = field(default_factory=list)
    log_end: int = -1
    """The end of its dispatch log before the damage."""
    range: str = ""
    """The lost range that the operator must accept, as the command takes it."""

    @property
    def own(self) -> OwnTopics:
        return OwnTopics.of(self.requests)

    @property
    def log(self) -> Partition:
        return Partition(self.own.dispatch_log, 0)

    @property
    def part(self) -> Partition:
        return Partition(self.requests, 0)

    def send(self, due_ms: int) -> Sent:
        headers = [(TOPIC, self.target.encode()), (AT, b"%d" % due_ms)]
        return self.sender.send(self.requests, Sent(self.target, b"k", b"v", list(headers), due_ms), 0)

    def hurry(self, sent: Sent) -> None:
        """Sends a reschedule that makes a pending message due now."""
        headers = [(ACTION, b"reschedule"), (ORIGIN, sent.origin), (AT, b"1")]
        self.sender.send(self.requests, Sent("", b"k", None, list(headers)), 0)

    def end(self, part: Partition) -> int:
        return self.admin.end_offsets([part], Isolation.READ_UNCOMMITTED)[part]

    def directory(self, sidecar: Sidecar) -> Path:
        (directory,) = [path for path in sidecar.data_dir.rglob(self.requests) if path.is_dir()]
        return directory / "0"

    def lose_disk(self, sidecar: Sidecar) -> None:
        self.directory(sidecar).rename(self.directory(sidecar).with_name("lost"))

    def change_index(self, sidecar: Sidecar, change: Callable[[EntryChanges, TimerIndex], None]) -> None:
        """Changes a position in the closed index, as if the log had once been longer."""
        live = self.admin.describe([self.requests, self.own.dispatch_log, self.own.store])
        ids = [live[name].topic_id for name in (self.requests, self.own.dispatch_log, self.own.store)]
        requests, dispatch_log, store = ids
        identity = Identity(self.admin.cluster_id(), requests, dispatch_log, 0, store)
        index = TimerIndex.open(self.directory(sidecar), identity, IndexOptions(), int(time.time() * 1000))
        changes = EntryChanges()
        change(changes, index)
        index.write(changes)
        index.close()

    def write_into_log(self, value: bytes) -> None:
        producer = Producer({"bootstrap.servers": self.deployment.bootstrap})
        producer.produce(self.log.topic, value, partition=0)
        assert producer.flush(WAIT_TIMEOUT_S) == 0


def _lose_requests(scenario: Scenario, sidecar: Sidecar) -> None:
    scenario.given_up += [scenario.send(1) for _ in range(_UNREAD)]
    scenario.sender.flush()
    delete_records(scenario.admin, {scenario.part: -1})


def _lose_requests_and_disk(scenario: Scenario, sidecar: Sidecar) -> None:
    scenario.lose_disk(sidecar)
    delete_records(scenario.admin, {scenario.part: -1})
    scenario.given_up, scenario.later = scenario.later, []


def _lose_fates_and_disk(scenario: Scenario, sidecar: Sidecar) -> None:
    scenario.lose_disk(sidecar)
    # The last record and its marker stay.
    delete_records(scenario.admin, {scenario.log: scenario.end(scenario.log) - 2})
    scenario.given_up, scenario.later = scenario.later, []


def _lose_all_fates_and_disk(scenario: Scenario, sidecar: Sidecar) -> None:
    scenario.lose_disk(sidecar)
    delete_records(scenario.admin, {scenario.log: -1})
    scenario.given_up, scenario.later = scenario.later, []


def _truncate_requests(scenario: Scenario, sidecar: Sidecar) -> None:
    def change(changes: EntryChanges, index: TimerIndex) -> None:
        changes.next_request = (index.checkpoint.next_request or 0) + _FILLED

    scenario.change_index(sidecar, change)


def _truncate_log(scenario: Scenario, sidecar: Sidecar) -> None:
    def change(changes: EntryChanges, index: TimerIndex) -> None:
        scenario.log_end = scenario.end(scenario.log)
        changes.next_dispatch = scenario.log_end + 1_000

    scenario.change_index(sidecar, change)


def _recreate_topics(scenario: Scenario, sidecar: Sidecar) -> None:
    scenario.admin.delete_topics(sorted(scenario.own.names()))
    wait_until(lambda: not scenario.admin.describe(scenario.own.names()), "the topics are gone")
    command_output(
        *("topics", "create", "-b", scenario.deployment.bootstrap, "--requests", scenario.requests),
        *("--partitions", "1", "--replication-factor", "1"),
    )
    scenario.given_up, scenario.later, scenario.stored = [], [], []


def _stranger(scenario: Scenario, sidecar: Sidecar) -> None:
    scenario.write_into_log(b"hello")


def _forger(scenario: Scenario, sidecar: Sidecar) -> None:
    forged = DispatchRecord(
        seq=1_000, takeover=1, instance="x", group="x", at=1, next_request=_READ, low_water=0, kind=BEAT
    )
    scenario.write_into_log(encode_record(forged))
    scenario.given_up, scenario.later = scenario.later, []


@dataclass(frozen=True)
class _Case:
    """The damage of a topic, the reason and range of the halt that must follow, and how many messages stay pending."""

    damage: Callable[[Scenario, Sidecar], None]
    reason: str
    loss: Callable[[Scenario], tuple[int, int] | None]
    """The lost range. If its first offset is the low-water mark, the halt may name a lower one: a record has the mark
    from before its own fates."""
    held: int


#: These halts are ended while no process serves the shard, the others while one does.
_ENDED_BEFORE_THE_START = ("requests lost", "fates and disk lost", "topics created again", "a stranger's record")
_CASES: dict[str, _Case] = {
    "requests lost": _Case(_lose_requests, "requests-lost", lambda _: (_READ, _READ + _UNREAD), _LATER + _STORED),
    "requests and disk lost": _Case(_lose_requests_and_disk, "low-water-outside", lambda _: (_SOON, _READ), _STORED),
    "fates and disk lost": _Case(_lose_fates_and_disk, "fates-missing", lambda _: (_SOON, _READ), _STORED),
    "all fates and disk lost": _Case(_lose_all_fates_and_disk, "dispatch-log-empty", lambda _: (0, _READ), _STORED),
    "requests truncated": _Case(
        _truncate_requests, "requests-truncated", lambda _: (_READ, _READ + _FILLED), _LATER + _STORED
    ),
    "log truncated": _Case(
        _truncate_log, "dispatch-log-truncated", lambda scenario: _beyond(scenario), _LATER + _STORED
    ),
    "topics created again": _Case(_recreate_topics, "topic-recreated", lambda _: None, 0),
    "a stranger's record": _Case(_stranger, "foreign-record", lambda scenario: _last(scenario), _LATER + _STORED),
    "a forged record": _Case(_forger, "seq-broken", lambda _: (_SOON, _READ), _STORED),
    "nothing": _Case(lambda scenario, sidecar: None, "", lambda _: None, _LATER + _STORED),
}


def _beyond(scenario: Scenario) -> tuple[int, int]:
    return scenario.log_end, scenario.log_end + 1_000


def _last(scenario: Scenario) -> tuple[int, int]:
    end = scenario.end(scenario.log)
    return end - 1, end


def test_each_halt_names_its_loss_and_ends_when_it_is_accepted_while_others_deliver(
    deployment: SidecarDeployment,
) -> None:
    sender = deployment.sender()
    admin = ConfluentKafka(KafkaSettings(deployment.bootstrap)).admin()
    topics = deployment.new_request_topics(len(_CASES))
    scenarios = {
        name: Scenario(deployment, name, requests, deployment.new_target(), sender, admin)
        for name, requests in zip(_CASES, topics, strict=True)
    }
    sidecar = deployment.new_sidecar()
    sidecar.start()
    sidecar.wait_for_shards(len(_CASES))
    _fill(deployment, scenarios)
    wait_until(lambda: set(_held(sidecar).values()) == {_LATER + _STORED}, "everything is ingested")
    assert sidecar.stop() == 0
    for name, case in _CASES.items():
        case.damage(scenarios[name], sidecar)
    sidecar.start()
    halted = [name for name, case in _CASES.items() if case.reason]
    wait_until(lambda: _halted(sidecar) == len(halted), f"{len(halted)} shards halt: {sidecar.directory}")
    sidecar.wait_for_shards(1)
    _check_status(sidecar, scenarios)
    _deliver_new(deployment, scenarios["nothing"])

    _fill_up(scenarios["requests truncated"])
    assert sidecar.stop() == 0
    stopped = [name for name in halted if name in _ENDED_BEFORE_THE_START]
    _end_halts(sidecar, scenarios, stopped)
    sidecar.start()
    wait_until(lambda: _halted(sidecar) == len(halted) - len(stopped), "the other shards stay halted")
    sidecar.wait_for_shards(1 + len(stopped))
    _end_halts(sidecar, scenarios, [name for name in halted if name not in stopped])
    sidecar.wait_for_shards(len(_CASES))

    held = {scenarios[name].requests: case.held for name, case in _CASES.items()}
    wait_until(lambda: _held(sidecar) == held, f"the messages that were not given up are pending: {held}")
    _deliver_rest(deployment, scenarios)
    assert sidecar.stop() == 0
    _judge(deployment, scenarios)
    admin.close()


def _fill(deployment: SidecarDeployment, scenarios: dict[str, Scenario]) -> None:
    now_ms = int(time.time() * 1000)
    for scenario in scenarios.values():
        scenario.delivered = [scenario.send(now_ms) for _ in range(_SOON)]
        scenario.later = [scenario.send(now_ms + _LATER_MS) for _ in range(_LATER)]
        scenario.stored = [scenario.send(now_ms + _STORED_MS) for _ in range(_STORED)]
        scenario.sender.flush()
    stores = deployment.reader(*(scenario.own.store for scenario in scenarios.values()))
    stores.until(lambda: len(stores.records) == _STORED * len(scenarios), "the messages with long delays are stored")
    stores.close()
    deployment.wait_for_ends(_SOON * len(scenarios))


def _rows(sidecar: Sidecar) -> list[dict[str, Any]]:
    output = command_output("shard", "status", "--data", str(sidecar.data_dir), "--output", "json")
    return [json.loads(line) for line in output.splitlines()]


def _halted(sidecar: Sidecar) -> int:
    """Returns how many shards of the running process have halted."""
    shards = find_shards(sidecar.data_dir)
    return sum(shard.state is State.HALTED and shard.status is not None and shard.status.served for shard in shards)


def _held(sidecar: Sidecar) -> dict[str, int | None]:
    """Returns the number of pending messages by request topic."""
    return {shard.requests: shard.pending for shard in find_shards(sidecar.data_dir)}


def _check_status(sidecar: Sidecar, scenarios: dict[str, Scenario]) -> None:
    rows = {row["requests"]: row for row in _rows(sidecar)}
    for name, case in _CASES.items():
        row, expected = rows[scenarios[name].requests], case.loss(scenarios[name])
        if not case.reason:
            assert row["reason"] is None, row
            continue
        assert (row["state"], row["reason"]) == ("HALTED", case.reason), row
        assert row["why"].startswith(case.reason), row
        assert row["action"], row
        assert (row["loss"] is None) == (expected is None), row
        if expected is not None:
            loss = row["loss"]
            assert loss["end"] == expected[1], row
            assert loss["first"] == expected[0] or (expected[0] == _SOON and loss["first"] < _SOON), row
            assert str(loss["first"]) in row["why"], row
            scenarios[name].range = f"{loss['first']}-{loss['end']}"


def _end_halts(sidecar: Sidecar, scenarios: dict[str, Scenario], names: list[str]) -> None:
    where = ("--data", str(sidecar.data_dir))
    for name in names:
        scenario = scenarios[name]
        shard = f"{scenario.requests}/0"
        if name == "topics created again":
            command_output("shard", "rebuild", shard, "--yes", *where)
        elif scenario.range:
            if name == names[0]:
                refused = run_postdate("shard", "resume", shard, *where)
                assert refused.returncode == _USAGE, refused
                assert f"--accept-loss {scenario.range}" in refused.stderr
                assert run_postdate("shard", "resume", shard, "--accept-loss", "0-1000000", *where).returncode == _USAGE
            command_output("shard", "resume", shard, "--accept-loss", scenario.range, *where)
        else:
            command_output("shard", "resume", shard, *where)


def _fill_up(scenario: Scenario) -> None:
    """Appends requests at offsets that the shard has already read once.

    The shard must not take these requests for the old ones, and must remember the truncation after a restart.
    """
    scenario.given_up += [scenario.send(1) for _ in range(_FILLED)]
    scenario.sender.flush()


def _deliver_new(deployment: SidecarDeployment, scenario: Scenario) -> None:
    """Sends new requests, and returns after they are delivered."""
    scenario.delivered += [scenario.send(1) for _ in range(2)]
    scenario.sender.flush()
    reader = deployment.reader(scenario.target)
    reader.until(lambda: len(reader.records) >= len(scenario.delivered), f"{scenario.name}: new messages arrive")
    reader.close()


def _deliver_rest(deployment: SidecarDeployment, scenarios: dict[str, Scenario]) -> None:
    """Makes all pending messages due, sends new requests, and returns after all are delivered."""
    for scenario in scenarios.values():
        for sent in (*scenario.later, *scenario.stored):
            scenario.hurry(sent)
            scenario.delivered.append(sent)
        scenario.delivered += [scenario.send(1) for _ in range(2)]
        scenario.sender.flush()
    wanted = sum(len(scenario.delivered) for scenario in scenarios.values())
    reader = deployment.reader(*(scenario.target for scenario in scenarios.values()))
    reader.until(lambda: len(reader.records) >= wanted, "all pending messages arrive")
    reader.close()


def _judge(deployment: SidecarDeployment, scenarios: dict[str, Scenario]) -> None:
    reader = deployment.reader(*(scenario.target for scenario in scenarios.values()))
    seen = Counter((record.topic, record.origin) for record in reader.to_end())
    reader.close()
    for name, scenario in scenarios.items():
        arrived = {origin: count for (topic, origin), count in seen.items() if topic == scenario.target}
        wanted = Counter(sent.origin for sent in scenario.delivered)  # a topic created again repeats its origins
        assert arrived == dict(wanted), name
        assert not arrived.keys() & {sent.origin for sent in scenario.given_up}, name
    outcome = gather(deployment.bootstrap, [scenarios["requests lost"].requests], [])
    losses = [loss for _, record in outcome.log if record.accepted for loss in record.accepted]
    assert losses == [("requests-lost", scenarios["requests lost"].requests, _READ, _READ + _UNREAD)]
