"""The report of load and lateness. Goal: exactly the messages without a final fate are ahead, at their current due
times. Method: the test writes topics on a real broker, with each kind of request and fate once, and no sidecar. It
compares the report with the written records: on the terminal, as JSON, as Parquet and as a page.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from postdate.spark.job.topic_reads import RECORDS
from postdate.spark.report.job import run_report
from postdate.spark.report.options import ReportOptions
from postdate.spark.report.rows import stored_rows
from postdate.spark.session.small_tables import small_table
from postdate.wire.dispatch_log import DispatchRecord, Moved, PlainFate, encode_record
from postdate.wire.headers import ACTION, AT, ID, RETRY, TOPIC
from postdate.wire.stored import StoredRequest, encode_stored
from support.audits.written_records import kafka_row
from support.brokers.broker import RunningBroker
from support.deployments.sidecar_deployment import SidecarDeployment, new_deployment

_MINUTE = 60_000
Sent = list[tuple[str, str | bytes | None]]


@pytest.fixture(scope="module")
def deployment(broker: RunningBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SidecarDeployment]:
    with new_deployment(broker.bootstrap_servers, tmp_path_factory.mktemp("report")) as made:
        made.new_requests(2)
        yield made


@dataclass
class Topics:
    """Handwritten records on topics. Requests get the offsets of partition 0 in their order."""

    deployment: SidecarDeployment
    base_ms: int

    def __post_init__(self) -> None:
        self.producer = Producer({"bootstrap.servers": self.deployment.bootstrap})
        self.requests = self.deployment.requests[0]

    def ask(self, target: str, due_ms: int, partition: int = 0, *more: tuple[str, bytes | None]) -> None:
        headers: Sent = [(TOPIC, target.encode()), (AT, b"%d" % due_ms), *more]
        self.producer.produce(self.requests, b"value", b"key", partition, headers=headers)

    def retry(self, target: str, policy: bytes) -> None:
        headers: Sent = [(TOPIC, target.encode()), (RETRY, policy)]
        self.producer.produce(self.requests, b"value", b"key", 0, headers=headers)

    def commit(self, *fates: Any) -> None:
        record = DispatchRecord(
            seq=1,
            takeover=1,
            instance="a",
            group="g",
            at=self.base_ms,
            next_request=100,
            low_water=0,
            policies=[(0, "patient", "base=5h, factor=1, max=5h, attempts=3, jitter=0%")],
            fates=[Moved(*fate) if len(fate) == 5 else PlainFate(*fate) for fate in fates],
        )
        self.producer.produce(f"{self.requests}.dispatch-log", encode_record(record), partition=0)

    def store(self, offset: int, due_ms: int) -> None:
        stored = StoredRequest(
            offset=offset,
            accepted_ms=self.base_ms,
            first_due_ms=due_ms,
            due_ms=due_ms,
            target="far",
            key=b"key",
            own_key=b"key",
            value=b"value",
            headers=[],
            stripped=[(0, TOPIC, b"far"), (1, AT, b"%d" % due_ms)],
            partition=-1,
            id=b"",
            grace_ms=-1,
        )
        key, value, headers = encode_stored(stored)
        self.producer.produce(f"{self.requests}.store", value, key, 0, headers=[*headers])


def test_a_schedule_with_only_extra_deliveries_is_ahead_at_the_earliest(spark: SparkSession) -> None:
    first_ms, next_ms, extra_ms = 1_000, 61_000, 90_000
    records = []
    for offset, due_ms, extras in (
        (3, 0, ((9, 1, extra_ms, extra_ms, extra_ms), (12, 1, 2_000, 5_000, extra_ms + 5))),
        (4, next_ms, ()),
    ):
        stored = StoredRequest(
            offset=offset,
            accepted_ms=0,
            first_due_ms=first_ms,
            due_ms=due_ms,
            target="far",
            key=None,
            own_key=None,
            value=b"v",
            headers=[],
            stripped=[(0, TOPIC, b"far")],
            partition=-1,
            id=b"s",
            grace_ms=-1,
            chosen_ms=due_ms or extra_ms,
            number=4,
            extras=extras,
            tz="2026a",
        )
        records.append(kafka_row("R.store", offset, 0, *encode_stored(stored)))
    found = stored_rows(small_table(spark, records, RECORDS), {"R.store": "R"}).collect()
    assert {row["offset"]: row["due_ms"] for row in found} == {3: extra_ms, 4: next_ms}


@pytest.mark.timeout(900)
def test_the_report_agrees_with_the_written_records(
    deployment: SidecarDeployment, spark: SparkSession, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    hour_ms = 3_600_000
    base_ms = int(time.time() * 1000) // hour_ms * hour_ms + 2 * hour_ms
    topics = Topics(deployment, base_ms)
    topics.ask("near", base_ms)  # 0
    topics.ask("near", base_ms + 90 * _MINUTE)  # 1
    topics.ask("moved", base_ms)  # 2: an hour later
    topics.ask("late", base_ms - 3 * hour_ms)  # 3: delivered, late
    topics.ask("late", base_ms - 3 * hour_ms, 0, (ID, b"x"))  # 4: replaced
    topics.ask("far", base_ms + 5 * hour_ms)  # 5: stored too
    topics.ask("overdue", base_ms - 4 * hour_ms)  # 6
    topics.producer.produce(topics.requests, None, b"x", 0, headers=[(ACTION, b"cancel"), (ID, b"x")])  # 7
    topics.retry("again", b"patient")  # 8: five hours after its record
    topics.ask("near", base_ms, 1)
    topics.commit([2, base_ms, "moved", base_ms + hour_ms, 8], [3, base_ms - 3 * hour_ms, "delivered"])
    topics.commit([4, base_ms - 3 * hour_ms, "replaced"], [5, base_ms + 5 * hour_ms, "stored"])
    topics.store(5, base_ms + 5 * hour_ms)
    topics.store(90, base_ms + 5 * hour_ms + 1)  # its request has left the topic
    topics.store(91, base_ms)
    topics.producer.produce(f"{topics.requests}.store", None, b"91", 0)
    assert topics.producer.flush(30) == 0

    written, html = tmp_path / "report", tmp_path / "report.html"
    given = ReportOptions(
        deployment.bootstrap,
        tuple(deployment.requests),
        write=str(written),
        html=str(html),
        output="json",
        settle_ms=5_000,
    )
    assert run_report(given) == 0
    printed = json.loads(capsys.readouterr().out)
    assert (printed["ahead"], printed["overdue"], printed["stored"], printed["notes"]) == (8, 1, 2, [])
    loads = {(one["by"], one["name"]): one["messages"] for one in printed["loads"]}
    assert {name: count for (by, name), count in loads.items() if by == "target"} == {
        **{"near": 3, "moved": 1, "far": 2, "overdue": 1, "again": 1}
    }
    assert loads["partition", f"{topics.requests}/0"] == 7
    hours = {int(name): count for (by, name), count in loads.items() if by == "hour"}
    assert hours == {
        base_ms: 2,
        base_ms + hour_ms: 2,
        base_ms + 3 * hour_ms: 1,
        base_ms + 5 * hour_ms: 2,
        base_ms - 4 * hour_ms: 1,
    }
    steps = {step["start_ms"]: step["rows"] for step in printed["load"]["steps"]}
    overdue = printed["now_ms"] // _MINUTE * _MINUTE
    again_ms = next(start_ms for start_ms in steps if 0 <= start_ms - base_ms - 3 * hour_ms < hour_ms)
    assert steps == {
        **{overdue: 1, base_ms: 2, base_ms + hour_ms: 1, base_ms + 90 * _MINUTE: 1, base_ms + 5 * hour_ms: 2},
        again_ms: 1,
    }
    assert all(one["size_bytes"] > 8 * one["messages"] for one in printed["loads"])

    late = printed["late"]
    assert [(one["origin"], one["target"]) for one in late] == [(f"{topics.requests}/0/3", "late")]
    assert late[0]["lateness_ms"] == late[0]["ended_ms"] - late[0]["due_ms"] >= 0
    spreads = {(one["by"], one["name"]): one for one in printed["lateness"]}
    assert spreads["target", "late"]["p50"] == spreads["all", "all"]["max"] == late[0]["lateness_ms"]
    tables = {name: spark.read.parquet(str(written / name)).count() for name in ("load", "minutes", "lateness", "late")}
    assert tables == {"load": len(printed["loads"]), "minutes": 6, "lateness": 4, "late": 1}
    page = html.read_text()
    assert page.count("<svg") == 2
    assert f"{topics.requests}/0/3" in page
