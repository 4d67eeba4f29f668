"""Goal: the time over which a rate is measured begins at the takeover by the measured process, not at an earlier one.

Method: a dispatch log in a simulated cluster that has two takeovers of each shard.
"""

from __future__ import annotations

from postdate.kafka.interface import NewTopic, Partition
from postdate.tools.bench.journal import Journal
from postdate.tools.bench.limits import PARTITIONS
from postdate.wire.dispatch_log import DELIVERED, FATES, OWNER, DispatchRecord, Fate, PlainFate, encode_record
from postdate.wire.topics import OwnTopics
from support.kafka_simulator import SimBroker, SimKafka

_LOG = OwnTopics.of("requests").dispatch_log


def _append(broker: SimBroker, index: int, seq: int, takeover: int, fates: list[Fate]) -> None:
    record = DispatchRecord(
        seq=seq,
        takeover=takeover,
        instance="a",
        group="g",
        at=0,
        next_request=9,
        low_water=0,
        kind=FATES if fates else OWNER,
        fates=fates,
    )
    broker.append(Partition(_LOG, index), b"k", encode_record(record), [], 0)


def test_the_seconds_begin_with_the_last_takeover_of_each_shard() -> None:
    broker = SimBroker()
    broker.create(NewTopic(_LOG, PARTITIONS, 1, {"message.timestamp.type": "LogAppendTime"}))
    for takeover in (1, 2):
        for index in range(PARTITIONS):
            _append(broker, index, takeover, takeover, [])
            broker.time.wait(100)
        broker.time.wait(60_000)
    for index in range(PARTITIONS):
        _append(broker, index, 3, 2, [PlainFate(0, 1, DELIVERED)])
        broker.time.wait(1_000)
    journal = Journal(SimKafka(broker), "requests")
    journal.follow(PARTITIONS, lambda: None)
    assert journal.seconds() == 60.0 + 0.1 * PARTITIONS + (PARTITIONS - 1), "the first shard's second takeover counts"
    assert journal.senders() == 1
