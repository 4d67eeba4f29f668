"""A forged loss, repaired. Goal: a repair requests each missing message exactly once more, and no message that may
still be delivered. Method: each reason on literal rows; then a real history with a forged dispatch-log record, as its
owner would write it. The record names one request as delivered, and its low-water mark lies above another request; a
third request waits for a sidecar. A sidecar without the old disk trusts the record, so two messages are lost. The test
repairs them twice, and reads them from the target.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from postdate.spark.audit.job import run_audit
from postdate.spark.audit.options import AuditOptions
from postdate.spark.errors import CannotRun
from postdate.spark.job.bounds import NEVER_MS, Range
from postdate.spark.job.cluster_queries import TopicPartition
from postdate.spark.job.options import LEVELS_MS_DEFAULT
from postdate.spark.job.topic_reads import RECORDS
from postdate.spark.records.deliveries import delivered_rows
from postdate.spark.records.fates import fate_rows, log_rows
from postdate.spark.records.requests import understood_rows
from postdate.spark.repair.job import provable_from_ms, require_plausible, run_repair
from postdate.spark.repair.options import RepairOptions
from postdate.spark.repair.output import RepairOutcome
from postdate.spark.repair.rows import (
    PARTITION_PROGRESS,
    PROVABLE,
    RepairEvidence,
    low_waters,
    repair_rows,
    requests_of,
    stored_offsets,
)
from postdate.spark.session.small_tables import small_table
from postdate.wire.dispatch_log import DispatchRecord, PlainFate, encode_record
from postdate.wire.headers import AT, DUE, GRACE, ID, SPREAD, TOPIC, WINDOW
from postdate.wire.origins import parse_origin
from postdate.wire.values.murmur2 import partition_for
from support.audits.written_records import LOG, REQUESTS, TARGET, RandomHistory, kafka_row
from support.brokers.broker import RunningBroker
from support.deployments.sidecar_deployment import SidecarDeployment, new_deployment
from support.oracles.exactly_once import Sent, gather

_MISSING = (
    "topic string, partition int, offset bigint, action string, request_ms bigint, last_due_ms bigint, fate string"
)
_LOGS = "topic string, partition int, log_topic string, log_end bigint, log_is_whole boolean"
_START, _NOW = 1_000_000, 2_000_000
#: Requests with a grace or a window: the reason why a request is not repaired, and its headers.
_LATE: dict[int, tuple[str | None, *tuple[tuple[str, bytes], ...]]] = {
    13: ("expired", (GRACE, b"999s")),
    14: (None, (GRACE, b"1001s")),
    22: (None, (WINDOW, b"15m"), (GRACE, b"101s")),
    23: (None, (WINDOW, b"901s"), (SPREAD, b"even")),
    24: ("expired", (WINDOW, b"15m"), (GRACE, b"99s")),
}
_ACTIONS = {4: "cancel", 25: "recurring"}
_REPAIRED: dict[int, tuple[int | None, int | None, str | None]] = {
    **dict.fromkeys((1, 2, 20), (None, None, None)),
    14: (1_001_000, None, None),
    22: (101_000, 900_000, None),
    23: (None, 901_000, "even"),
}
"""Grace, window and spread of the repaired requests."""


def test_each_reason(spark: SparkSession) -> None:
    history, to = RandomHistory(_START), (TOPIC, TARGET.encode())
    expected: dict[int, str | None] = {}

    def case(offset: int, reason: str | None, *control: tuple[str, bytes | None], **message: Any) -> None:
        history.ask(offset, *control, **message)
        expected[offset] = reason

    case(1, None, to, (AT, b"1"), ("postdate-partition", b"3"), headers=[("trace", b"x")], key=None)
    for offset, reason in ((2, None), (15, "on-target"), (16, "record-gone")):
        case(offset, reason)
    case(17, "record-gone", (TOPIC, b"another"), (AT, b"1"))
    case(18, "record-gone", key=b"elsewhere")
    provable_ms = [_START + 2_000] * 4
    provable_ms[partition_for(b"elsewhere", 4)] = NEVER_MS
    case(3, "ended")
    case(4, "control", ("postdate-action", b"cancel"), (ID, b"x"))
    expected[5] = "request-gone"
    case(7, "stored")
    case(8, "acted-on", to, (AT, b"1"), (ID, b"twice"))
    history.ask(9, to, (AT, b"1"), (ID, b"twice"))
    case(10, "acted-on")
    history.ask(11, ("postdate-action", b"cancel"), ("postdate-origin", f"{REQUESTS}/0/10".encode()))
    case(12, "unreadable", (AT, b"1"))
    for offset, (reason, *more) in _LATE.items():
        case(offset, reason, to, (AT, b"1"), *more)
    case(19, "return", to, ("postdate-retry", b"base=1s"), ("postdate-origin", f"{REQUESTS}/0/2".encode()), (ID, b"r"))
    case(20, None, to, (AT, b"1"), (ID, b"returned"))
    history.ask(21, to, ("postdate-retry", b"base=1s"), (ID, b"returned"))
    case(25, "schedule", to, ("postdate-every", b"1m"), (ID, b"recurring"))
    case(50, "held")
    history.commit([16, 1, "delivered"], low_water=50, at_ms=_START + 1_999)
    fates = [[offset, 1, "delivered"] for offset in (2, 3, 15, 17, 18)]
    history.commit(*fates, [7, 1, "stored"], low_water=50, at_ms=_START + 2_000)
    history.deliver(15)
    history.deliver(2, topic="retries")
    history.commit([9, 1, "replaced"], low_water=90)  # read only to settle doubts, so its low-water mark does not count
    missing = [
        (REQUESTS, 0, offset, _ACTIONS.get(offset, "schedule"), _START, None if offset == 12 else _START, fate)
        for offset in expected
        for fate in ["delivered" if offset in (2, 15, 16, 17, 18) else None]
    ]
    missing.append((REQUESTS, 1, 1, "schedule", _START, _START, None))
    log = log_rows(small_table(spark, history.log, RECORDS), small_table(spark, [(REQUESTS, 0, LOG, 2, True)], _LOGS))
    assert [(row["partition"], row["low_water"]) for row in low_waters(log).collect()] == [(0, 50)]
    store = [
        kafka_row(f"{REQUESTS}.store", place, _START, str(key).encode(), value, [])
        for place, (key, value) in enumerate([(7, b"v"), (1, b"v"), (1, None)])
    ]
    found = repair_rows(
        small_table(spark, missing, _MISSING),
        RepairEvidence(
            understood_rows(small_table(spark, history.requests, RECORDS), LEVELS_MS_DEFAULT).persist(),
            fate_rows(log),
            stored_offsets(small_table(spark, store, RECORDS)),
            small_table(spark, [(0, 50, -1, 0), (1, 50, _START + 1, 0)], PARTITION_PROGRESS),
            delivered_rows(small_table(spark, history.delivered, RECORDS), [REQUESTS]),
            small_table(spark, [(TARGET, 4, [-1] * 4, provable_ms)], PROVABLE),
        ),
        _NOW,
    ).persist()
    reasons = {(row["partition"], row["offset"]): row["reason"] for row in found.collect()}
    assert reasons == {(1, 1): "unknown"} | {(0, offset): reason for offset, reason in expected.items()}
    requested = {row["id"]: row.asDict(recursive=True) for row in requests_of(found).collect()}
    graces = {key: (one["grace"], one["window"], one["spread"]) for key, one in requested.items()}
    assert graces == {f"repair/0/{offset}": late for offset, late in _REPAIRED.items()}
    first = requested["repair/0/1"]
    message = (first["target"], first["key"], bytes(first["value"]), first["at"], first["partition"], first["grace"])
    assert message == (TARGET, None, b"v", _START, 3, None)
    assert [(header["key"], bytes(header["value"])) for header in first["headers"]] == [("trace", b"x")]


@pytest.mark.parametrize(
    ("repairable", "judged", "options", "is_refused"),
    [
        (10, 10, {"apply": True}, False),
        (11, 1_100, {"apply": True}, False),
        (11, 1_099, {"apply": True}, True),
        (11, 0, {"apply": True}, True),
        (11, 1_099, {"apply": True, "any_share": True}, False),
        (11, 1_099, {}, False),
    ],
)
def test_an_implausible_share_needs_consent(
    repairable: int, judged: int, options: dict[str, Any], is_refused: bool
) -> None:
    found = RepairOutcome(REQUESTS, "audited", True, repairable, 0, judged, repairable)
    with pytest.raises(CannotRun, match="--any-share") if is_refused else nullcontext():
        require_plausible(found, RepairOptions("b:1", "audited", **options))


def test_the_time_from_which_a_target_still_has_every_delivered_record() -> None:
    def span(known_ms: int, log_start: int = 0) -> Range:
        return Range("target", TopicPartition(TARGET, 0), log_start, log_start, 9, 9, False, 1, known_ms)

    assert provable_from_ms([span(50), span(40)]) == [40, 40]
    assert provable_from_ms([span(50), span(NEVER_MS)]) == [50, 50]
    assert provable_from_ms([span(50), span(70_000, 5)]) == [50, 90_001], "two transactions later than what was lost"
    assert provable_from_ms([span(50), span(NEVER_MS, 5)]) == [50, NEVER_MS], "nobody knows what was lost"
    assert provable_from_ms([span(NEVER_MS)]) == [NEVER_MS], "created again, and nothing was delivered to it since"


@pytest.fixture(scope="module")
def deployment(broker: RunningBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SidecarDeployment]:
    with new_deployment(broker.bootstrap_servers, tmp_path_factory.mktemp("repair")) as made:
        made.new_requests(1)
        made.new_target(2)
        yield made


def _lost(deployment: SidecarDeployment) -> dict[str, int]:
    """Adds three requests after the last sidecar has stopped, two of which are lost. Returns their offsets by name, and
    their due time."""
    requests, target, now_ms = deployment.requests[0], deployment.targets[0], int(time.time() * 1000)
    sender, due_ms = deployment.sender(), now_ms - 600_000
    sidecar = deployment.new_sidecar("first")
    sidecar.start()
    sender.send(requests, Sent(target, b"k", b"before", [(TOPIC, target.encode()), (AT, b"%d" % now_ms)]))
    deployment.wait_for_ends(1)
    assert sidecar.stop() == 0
    sent = {}
    for name in ("fated", "forgotten", "held"):
        headers: list[tuple[str, bytes | None]] = [("trace", name.encode()), (TOPIC, target.encode())]
        sent[name] = sender.send(requests, Sent(target, b"k", name.encode(), [*headers, (AT, b"%d" % due_ms)]))
        sender.flush()
    offsets = {name: parse_origin(one.origin)[2] for name, one in sent.items()}
    last = max(
        gather(deployment.bootstrap, deployment.requests, deployment.targets).log, key=lambda pair: pair[0].offset
    )[1]
    forged = DispatchRecord(
        seq=last.seq + 1,
        takeover=last.takeover,
        instance=last.instance,
        group=last.group,
        at=now_ms,
        next_request=offsets["held"],
        low_water=offsets["held"],
        fates=[PlainFate(offsets["fated"], due_ms, "delivered")],
    )
    producer = Producer({"bootstrap.servers": deployment.bootstrap})
    producer.produce(f"{requests}.dispatch-log", encode_record(forged), partition=0)
    assert producer.flush(30) == 0
    return {**offsets, "due_ms": due_ms}


@pytest.mark.timeout(1200)  # an audit, three repairs and two sidecars
def test_a_loss_is_repaired_once(
    deployment: SidecarDeployment, spark: SparkSession, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    lost, requests, audited = _lost(deployment), deployment.requests[0], str(tmp_path / "audited")

    def repaired(**options: Any) -> tuple[int, dict[str, Any]]:
        code = run_repair(
            RepairOptions(deployment.bootstrap, audited, requests, output="json", settle_ms=5_000, **options)
        )
        return code, json.loads(capsys.readouterr().out)

    assert run_audit(AuditOptions(deployment.bootstrap, (requests,), slack_ms=1_000, state=audited, output="json")) == 4
    assert json.loads(capsys.readouterr().out)["counts"]["missing"] == 3

    code, dry = repaired()
    assert (code, dry["missing"], dry["repairable"], dry["sent"], dry["reasons"]) == (1, 3, 2, 0, {"held": 1}), dry
    assert [one["origin"] for one in dry["samples"]] == [f"{requests}/0/{lost['held']}"]
    code, first = repaired(apply=True)
    assert (code, first["repairable"], first["already"], first["sent"]) == (1, 2, 0, 2), first

    sidecar = deployment.new_sidecar("second")
    sidecar.start()
    deployment.wait_for_ends(5)
    code, again = repaired(apply=True)
    assert (code, again["already"], again["sent"], again["reasons"]) == (0, 2, 0, {"ended": 1}), again
    assert sidecar.stop() == 0

    found = gather(deployment.bootstrap, deployment.requests, deployment.targets)
    counts = Counter(seen.value for seen in found.delivered)
    assert counts == {b"before": 1, b"fated": 1, b"forgotten": 1, b"held": 1}
    for seen in found.delivered:
        if seen.value in (b"fated", b"forgotten"):
            offset = lost[seen.value.decode()]
            assert (seen.key, seen.last("trace"), seen.last(ID)) == (b"k", seen.value, b"repair/0/%d" % offset)
            assert seen.last(DUE) == b"%d" % lost["due_ms"]
