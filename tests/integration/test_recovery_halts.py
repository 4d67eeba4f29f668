"""Goal: a shard that would lose or repeat a message halts, names the reason and the loss, and continues when an
operator accepts it; the other shards of its process deliver meanwhile.

Method: one process serves a request topic for each damage and one that nothing happens to. It delivers some messages,
holds others, stores some, and is stopped. Then each topic, or the index of its shard, loses what only an administrator
or a disaster takes: requests, fates, the ends of logs, the identity of a topic; or a stranger writes into its dispatch
log. The process is started again. Each halt must be named by `postdate shard status` with its range, and be ended by
`postdate shard resume` or `rebuild`. Last, everything that is left is made due: each message that was not given up
must come exactly once, before the damage or after it, and none of the others.
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
from support.deployments.command import run_postdate, said_by
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
class Play:
    """One request topic: what was asked, and what is to become of it."""

    env: SidecarDeployment
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
    """Where its dispatch log ended before the damage."""
    range: str = ""
    """What its shard asks to have accepted."""

    @property
    def own(self) -> OwnTopics:
        return OwnTopics.of(self.requests)

    @property
    def log(self) -> Partition:
        return Partition(self.own.dispatch_log, 0)

    @property
    def part(self) -> Partition:
        return Partition(self.requests, 0)

    def ask(self, due_ms: int) -> Sent:
        given = [(TOPIC, self.target.encode()), (AT, b"%d" % due_ms)]
        return self.sender.send(self.requests, Sent(self.target, b"k", b"v", list(given), due_ms), 0)

    def hurry(self, sent: Sent) -> None:
        """Make a held message due at once."""
        given = [(ACTION, b"reschedule"), (ORIGIN, sent.origin), (AT, b"1")]
        self.sender.send(self.requests, Sent("", b"k", None, list(given)), 0)

    def end(self, part: Partition) -> int:
        return self.admin.end_offsets([part], Isolation.READ_UNCOMMITTED)[part]

    def directory(self, sidecar: Sidecar) -> Path:
        (found,) = [path for path in sidecar.data_dir.rglob(self.requests) if path.is_dir()]
        return found / "0"

    def lose_disk(self, sidecar: Sidecar) -> None:
        self.directory(sidecar).rename(self.directory(sidecar).with_name("lost"))

    def change_index(self, sidecar: Sidecar, change: Callable[[EntryChanges, TimerIndex], None]) -> None:
        """Change a position of the closed index, as if the log had once been longer."""
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
        producer = Producer({"bootstrap.servers": self.env.bootstrap})
        producer.produce(self.log.topic, value, partition=0)
        assert producer.flush(WAIT_TIMEOUT_S) == 0


def _lose_requests(play: Play, sidecar: Sidecar) -> None:
    play.given_up += [play.ask(1) for _ in range(_UNREAD)]
    play.sender.flush()
    delete_records(play.admin, {play.part: -1})


def _lose_requests_and_disk(play: Play, sidecar: Sidecar) -> None:
    play.lose_disk(sidecar)
    delete_records(play.admin, {play.part: -1})
    play.given_up, play.later = play.later, []


def _lose_fates_and_disk(play: Play, sidecar: Sidecar) -> None:
    play.lose_disk(sidecar)
    delete_records(play.admin, {play.log: play.end(play.log) - 2})  # the last record and its marker stay
    play.given_up, play.later = play.later, []


def _lose_all_fates_and_disk(play: Play, sidecar: Sidecar) -> None:
    play.lose_disk(sidecar)
    delete_records(play.admin, {play.log: -1})
    play.given_up, play.later = play.later, []


def _truncate_requests(play: Play, sidecar: Sidecar) -> None:
    def change(changes: EntryChanges, index: TimerIndex) -> None:
        changes.next_request = (index.checkpoint.next_request or 0) + _FILLED

    play.change_index(sidecar, change)


def _truncate_log(play: Play, sidecar: Sidecar) -> None:
    def change(changes: EntryChanges, index: TimerIndex) -> None:
        play.log_end = play.end(play.log)
        changes.next_dispatch = play.log_end + 1_000

    play.change_index(sidecar, change)


def _recreate_topics(play: Play, sidecar: Sidecar) -> None:
    play.admin.delete_topics(sorted(play.own.names()))
    wait_until(lambda: not play.admin.describe(play.own.names()), "the topics are gone")
    said_by(
        *("topics", "create", "-b", play.env.bootstrap, "--requests", play.requests),
        *("--partitions", "1", "--replication-factor", "1"),
    )
    play.given_up, play.later, play.stored = [], [], []


def _stranger(play: Play, sidecar: Sidecar) -> None:
    play.write_into_log(b"hello")


def _forger(play: Play, sidecar: Sidecar) -> None:
    forged = DispatchRecord(
        seq=1_000, takeover=1, instance="x", group="x", at=1, next_request=_READ, low_water=0, kind=BEAT
    )
    play.write_into_log(encode_record(forged))
    play.given_up, play.later = play.later, []


@dataclass(frozen=True)
class _Case:
    """What is done to a topic, the halt that must follow, the range it must name, and how many are held after it."""

    damage: Callable[[Play, Sidecar], None]
    reason: str
    loss: Callable[[Play], tuple[int, int] | None]
    """The first is that at most, where it follows from the low-water mark: a record tells that from before its fates.
    """
    held: int


#: Asked for while no process serves the shard; the others are asked while one does.
_ASKED_BEFORE_THE_START = ("requests lost", "fates and disk lost", "topics created again", "a stranger's record")
_CASES: dict[str, _Case] = {
    "requests lost": _Case(_lose_requests, "requests-lost", lambda _: (_READ, _READ + _UNREAD), _LATER + _STORED),
    "requests and disk lost": _Case(_lose_requests_and_disk, "low-water-outside", lambda _: (_SOON, _READ), _STORED),
    "fates and disk lost": _Case(_lose_fates_and_disk, "fates-missing", lambda _: (_SOON, _READ), _STORED),
    "all fates and disk lost": _Case(_lose_all_fates_and_disk, "dispatch-log-empty", lambda _: (0, _READ), _STORED),
    "requests truncated": _Case(
        _truncate_requests, "requests-truncated", lambda _: (_READ, _READ + _FILLED), _LATER + _STORED
    ),
    "log truncated": _Case(_truncate_log, "dispatch-log-truncated", lambda play: _beyond(play), _LATER + _STORED),
    "topics created again": _Case(_recreate_topics, "topic-recreated", lambda _: None, 0),
    "a stranger's record": _Case(_stranger, "foreign-record", lambda play: _last(play), _LATER + _STORED),
    "a forged record": _Case(_forger, "seq-broken", lambda _: (_SOON, _READ), _STORED),
    "nothing": _Case(lambda play, sidecar: None, "", lambda _: None, _LATER + _STORED),
}


def _beyond(play: Play) -> tuple[int, int]:
    return play.log_end, play.log_end + 1_000


def _last(play: Play) -> tuple[int, int]:
    end = play.end(play.log)
    return end - 1, end


def test_each_halt_names_its_loss_and_ends_when_it_is_accepted_while_others_deliver(env: SidecarDeployment) -> None:
    sender = env.sender()
    admin = ConfluentKafka(KafkaSettings(env.bootstrap)).admin()
    topics = env.new_request_topics(len(_CASES))
    plays = {
        name: Play(env, name, requests, env.new_target(), sender, admin)
        for name, requests in zip(_CASES, topics, strict=True)
    }
    sidecar = env.new_sidecar()
    sidecar.start()
    sidecar.wait_for_shards(len(_CASES))
    _fill(env, plays)
    wait_until(lambda: set(_held(sidecar).values()) == {_LATER + _STORED}, "everything is taken in")
    assert sidecar.stop() == 0
    for name, case in _CASES.items():
        case.damage(plays[name], sidecar)
    sidecar.start()
    halted = [name for name, case in _CASES.items() if case.reason]
    wait_until(lambda: _halted(sidecar) == len(halted), f"{len(halted)} shards halt: {sidecar.directory}")
    sidecar.wait_for_shards(1)
    _check_told(sidecar, plays)
    _deliver_anew(env, plays["nothing"])

    _fill_up(plays["requests truncated"])
    assert sidecar.stop() == 0
    asleep = [name for name in halted if name in _ASKED_BEFORE_THE_START]
    _end_halts(sidecar, plays, asleep)
    sidecar.start()
    wait_until(lambda: _halted(sidecar) == len(halted) - len(asleep), "those that were not asked stay halted")
    sidecar.wait_for_shards(1 + len(asleep))
    _end_halts(sidecar, plays, [name for name in halted if name not in asleep])
    sidecar.wait_for_shards(len(_CASES))

    held = {plays[name].requests: case.held for name, case in _CASES.items()}
    wait_until(lambda: _held(sidecar) == held, f"what was not given up is held: {held}")
    _deliver_rest(env, plays)
    assert sidecar.stop() == 0
    _judge(env, plays)
    admin.close()


def _fill(env: SidecarDeployment, plays: dict[str, Play]) -> None:
    now_ms = int(time.time() * 1000)
    for play in plays.values():
        play.delivered = [play.ask(now_ms) for _ in range(_SOON)]
        play.later = [play.ask(now_ms + _LATER_MS) for _ in range(_LATER)]
        play.stored = [play.ask(now_ms + _STORED_MS) for _ in range(_STORED)]
        play.sender.flush()
    stores = env.reader(*(play.own.store for play in plays.values()))
    stores.until(lambda: len(stores.records) == _STORED * len(plays), "the late ones are stored")
    stores.close()
    env.wait_for_ends(_SOON * len(plays))


def _rows(sidecar: Sidecar) -> list[dict[str, Any]]:
    said = said_by("shard", "status", "--data", str(sidecar.data_dir), "--output", "json")
    return [json.loads(line) for line in said.splitlines()]


def _halted(sidecar: Sidecar) -> int:
    """How many shards of the running process have halted."""
    found = find_shards(sidecar.data_dir)
    return sum(shard.state is State.HALTED and shard.status is not None and shard.status.served for shard in found)


def _held(sidecar: Sidecar) -> dict[str, int | None]:
    """Pending by request topic."""
    return {shard.requests: shard.pending for shard in find_shards(sidecar.data_dir)}


def _check_told(sidecar: Sidecar, plays: dict[str, Play]) -> None:
    rows = {row["requests"]: row for row in _rows(sidecar)}
    for name, case in _CASES.items():
        row, expected = rows[plays[name].requests], case.loss(plays[name])
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
            plays[name].range = f"{loss['first']}-{loss['end']}"


def _end_halts(sidecar: Sidecar, plays: dict[str, Play], names: list[str]) -> None:
    where = ("--data", str(sidecar.data_dir))
    for name in names:
        play = plays[name]
        shard = f"{play.requests}/0"
        if name == "topics created again":
            said_by("shard", "rebuild", shard, "--yes", *where)
        elif play.range:
            if name == names[0]:
                refused = run_postdate("shard", "resume", shard, *where)
                assert (refused.returncode, f"--accept-loss {play.range}" in refused.stderr) == (_USAGE, True), refused
                assert run_postdate("shard", "resume", shard, "--accept-loss", "0-1000000", *where).returncode == _USAGE
            said_by("shard", "resume", shard, "--accept-loss", play.range, *where)
        else:
            said_by("shard", "resume", shard, *where)


def _fill_up(play: Play) -> None:
    """Offsets are given out a second time: what is produced to them must never be taken for what was there before, and
    that there was something must not be forgotten when the process is started anew."""
    play.given_up += [play.ask(1) for _ in range(_FILLED)]
    play.sender.flush()


def _deliver_anew(env: SidecarDeployment, play: Play) -> None:
    """New requests are taken in and delivered."""
    play.delivered += [play.ask(1) for _ in range(2)]
    play.sender.flush()
    reader = env.reader(play.target)
    reader.until(lambda: len(reader.records) >= len(play.delivered), f"{play.name}: new ones come")
    reader.close()


def _deliver_rest(env: SidecarDeployment, plays: dict[str, Play]) -> None:
    """Whatever is held is made due, and new requests are taken in."""
    for play in plays.values():
        for sent in (*play.later, *play.stored):
            play.hurry(sent)
            play.delivered.append(sent)
        play.delivered += [play.ask(1) for _ in range(2)]
        play.sender.flush()
    wanted = sum(len(play.delivered) for play in plays.values())
    reader = env.reader(*(play.target for play in plays.values()))
    reader.until(lambda: len(reader.records) >= wanted, "everything that is held comes")
    reader.close()


def _judge(env: SidecarDeployment, plays: dict[str, Play]) -> None:
    reader = env.reader(*(play.target for play in plays.values()))
    seen = Counter((record.topic, record.origin) for record in reader.to_end())
    reader.close()
    for name, play in plays.items():
        came = {origin: count for (topic, origin), count in seen.items() if topic == play.target}
        wanted = Counter(sent.origin for sent in play.delivered)  # a topic created again repeats its origins
        assert came == dict(wanted), name
        assert not came.keys() & {sent.origin for sent in play.given_up}, name
    accepted = gather(env.bootstrap, [plays["requests lost"].requests], [])
    told = [loss for _, record in accepted.log if record.accepted for loss in record.accepted]
    assert told == [("requests-lost", plays["requests lost"].requests, _READ, _READ + _UNREAD)]
