"""A real history, audited as it is and after forgeries. Goal: the audit confirms a sidecar that has kept its promises.
It finds a single delivered record that was produced a second time, and a single dispatch-log record that no sidecar has
written, however well it imitates one. Method: a sidecar delivers five hundred requests, some cancelled, replaced or
rescheduled, on a real broker. The audit of the clean history and the first audit of the forged one run in the session
of these tests. The last one runs through `spark-submit` on a cluster, and must give the same result and exit code. An
audit with a state reads the clean history in its first run and the forgeries in its second.
POSTDATE_TEST_SPARK_WORKERS=N gives the cluster N workers instead of two.
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

from postdate.spark import audit_main
from postdate.spark.audit.job import run_audit
from postdate.spark.audit.options import AuditOptions
from postdate.spark.errors import JobUsageError
from postdate.spark.state.store import acknowledge, last_verdicts
from postdate.wire.dispatch_log import DispatchRecord, PlainFate, encode_record
from postdate.wire.headers import ACTION, AT, DELAY, ID, TOPIC
from postdate.wire.origins import parse_origin
from support.audits.spark_cluster import submitted as run_submitted
from support.brokers.broker import RunningBroker
from support.deployments.sidecar_deployment import SidecarDeployment, new_deployment
from support.oracles.exactly_once import Outcome as History
from support.oracles.exactly_once import Seen, Sent, gather

_PLAIN, _CONTROLLED = 380, 30


@pytest.fixture(scope="module")
def deployment(broker: RunningBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SidecarDeployment]:
    """Yields a complete history: one request topic, one target, and no running sidecar."""
    with new_deployment(broker.bootstrap_servers, tmp_path_factory.mktemp("forgery")) as made:
        requests, target = made.new_requests(2), made.new_target(3)
        sidecar = made.new_sidecar(topic={"verdicts": "all"})
        sidecar.start()
        sidecar.wait_for_shards(2)
        sender = made.sender()
        sent = [sender.send(requests, request) for request in _requests(target, int(time.time() * 1000))]
        sender.flush()
        made.wait_for_ends(len(sent))
        assert sidecar.stop() == 0
        yield made


def _requests(target: str, now_ms: int) -> list[Sent]:
    """Returns requests due over four seconds, and three controls of each kind for each id, on the partition of the
    id."""
    topic = (TOPIC, target.encode())
    found = [
        Sent(target, b"%d" % n, b"v%d" % n, [topic, (AT, b"%d" % (now_ms + 1_000 + n * 3_000 // _PLAIN))])
        for n in range(_PLAIN)
    ]
    for n in range(_CONTROLLED):
        id = b"id-%d" % n
        schedule = [topic, (DELAY, b"3s"), (ID, id)]
        control: list[list[tuple[str, bytes | None]]] = [
            [(ACTION, b"cancel"), (ID, id)],
            [(ACTION, b"reschedule"), (ID, id), (DELAY, b"2s")],
            [topic, (DELAY, b"1s"), (ID, id)],
        ]
        found += [Sent(target, id, b"first", [*schedule]), Sent(target, id, b"then", control[n % 3])]
        found += [Sent(target, id, b"last", [(ACTION, b"cancel"), (ID, b"nobody-%d" % n)])]
    return found


@dataclass(frozen=True)
class _Audited:
    """The result of an audit."""

    exit_code: int
    outcome: dict[str, Any]

    def sampled(self, verdict: str) -> dict[str, dict[str, Any]]:
        """Returns the samples of a verdict by origin."""
        return {sample["origin"]: sample for sample in self.outcome["samples"].get(verdict, [])}


def _audited(deployment: SidecarDeployment, capsys: pytest.CaptureFixture[str], **options: Any) -> _Audited:
    """Runs an audit in the session of these tests."""
    given = AuditOptions(deployment.bootstrap, tuple(deployment.requests), output="json", slack_ms=1_000, **options)
    exit_code = run_audit(given)
    return _Audited(exit_code, json.loads(capsys.readouterr().out))


@dataclass(frozen=True)
class _Forged:
    """The forgeries: the request of the repeated record, the request of the repeated fate, the forged records."""

    repeated: str
    refated: str
    imitation: str
    stranger: str


def _forge(deployment: SidecarDeployment) -> _Forged:
    """Produces a delivered record again, a dispatch-log record as its owner would write it, and a dispatch-log record
    of another writer."""
    history = gather(deployment.bootstrap, deployment.requests, deployment.targets)
    producer = Producer({"bootstrap.servers": deployment.bootstrap})
    one, other = sorted(history.delivered, key=lambda seen: parse_origin(seen.origin))[:2]
    _produced(producer, one.topic, one.partition, one.key, one.value, one.headers)
    topic, partition, offset = parse_origin(other.origin)
    last = _last_record(history, partition)
    due_ms = int(other.last("postdate-due"))
    imitation = DispatchRecord(
        seq=last.seq + 1,
        takeover=last.takeover,
        instance=last.instance,
        group=last.group,
        at=last.at,
        next_request=last.next_request,
        low_water=last.low_water,
        fates=[PlainFate(offset, due_ms, "delivered")],
    )
    log = f"{topic}.dispatch-log"
    imitated = _produced(producer, log, partition, None, encode_record(imitation), [])
    imitation.seq, imitation.instance, imitation.fates, imitation.kind = last.seq + 2, "stranger", [], "beat"
    strange = _produced(producer, log, partition, None, encode_record(imitation), [])
    place = f"{log}/{partition}"
    return _Forged(one.origin.decode(), other.origin.decode(), f"{place}/{imitated}", f"{place}/{strange}")


def _repeat(producer: Producer, deployment: SidecarDeployment, origin: str) -> None:
    """Produces a record of this request again."""
    delivered = gather(deployment.bootstrap, deployment.requests, deployment.targets).delivered
    one = next(seen for seen in delivered if seen.origin == origin.encode())
    _produced(producer, one.topic, one.partition, one.key, one.value, one.headers)


def _last_record(history: History, partition: int) -> DispatchRecord:
    found: list[tuple[Seen, DispatchRecord]] = [pair for pair in history.log if pair[0].partition == partition]
    return max(found, key=lambda pair: pair[0].offset)[1]


def _produced(producer: Producer, topic: str, partition: int, key: Any, value: Any, headers: Any) -> int:
    """Produces one record; returns its offset."""
    offsets: list[int] = []
    producer.produce(
        topic,
        value,
        key,
        partition,
        lambda error, message: offsets.append(-1 if error is not None else message.offset() or 0),
        headers=headers,
    )
    assert producer.flush(30) == 0
    assert offsets, "no answer from the broker"
    assert offsets[0] >= 0, "the forged record was not taken"
    return offsets[0]


@pytest.mark.timeout(1200)  # three audits, one of them in a separate JVM
def test_clean_then_forged_and_named(
    deployment: SidecarDeployment, spark: SparkSession, capsys: pytest.CaptureFixture[str], tmp_path: Path, master: str
) -> None:
    clean = _audited(deployment, capsys, verdicts="all")
    requests = _PLAIN + 3 * _CONTROLLED
    assert (clean.exit_code, clean.outcome["violations"], clean.outcome["origins"]) == (0, 0, requests), clean.outcome
    counts = {name: count for name, count in clean.outcome["counts"].items() if count}
    third = _CONTROLLED // 3
    assert counts == {
        **{"delivered": _PLAIN + 2 * third, "cancelled": third, "replaced": third},
        "applied": 2 * third + _CONTROLLED,
    }
    # Each request has one answer. Each replaced request has a second one, `replaced`.
    assert clean.outcome["verdict_records"] == {"required": "all", "read": requests + third, "malformed": 0}

    state = str(tmp_path / "state")
    first = _audited(deployment, capsys, verdicts="all", state=state)
    for name in ("counts", "origins", "lateness_ms", "samples"):
        assert first.outcome[name] == clean.outcome[name], name
    assert (first.exit_code, first.outcome["state"]["open"]) == (0, 0)
    assert last_verdicts(spark, state).count() == requests

    forged = _forge(deployment)
    second = _audited(deployment, capsys, verdicts="all", state=state)
    assert second.sampled("duplicate").keys() == {forged.repeated, forged.refated}
    assert second.sampled("chain").keys() == {forged.stranger}
    assert (second.exit_code, second.outcome["violations"], second.outcome["origins"]) == (4, 3, 2)

    # An audit without new findings still ends with 4, until a person acknowledges the findings of the second run.
    idle = _audited(deployment, capsys, verdicts="all", state=state)
    standing = {name: idle.outcome["state"][name] for name in ("run", "standing")}
    assert (idle.exit_code, idle.outcome["clean"], standing) == (4, False, {"run": 2, "standing": 3})
    with pytest.raises(JobUsageError, match=r"Run 1 of .* has found no violation"):
        acknowledge(spark, state, 1, "Ada", None)
    assert acknowledge(spark, state, 2, "Ada", "forged by a test") == 3
    last = _audited(deployment, capsys, verdicts="all", state=state)
    assert (last.exit_code, last.outcome["clean"], last.outcome["state"]["standing"]) == (0, True, 0)

    # Another copy of an acknowledged record is a new violation.
    _repeat(Producer({"bootstrap.servers": deployment.bootstrap}), deployment, forged.repeated)
    again = _audited(deployment, capsys, verdicts="all", state=state)
    assert (again.exit_code, set(again.sampled("duplicate"))) == (4, {forged.repeated})

    full = _audited(deployment, capsys)
    assert full.exit_code == 4
    repeated, refated = full.sampled("duplicate")[forged.repeated], full.sampled("duplicate")[forged.refated]
    assert "3 committed records" in repeated["details"][0]
    assert forged.imitation in refated["details"][0]
    assert forged.imitation in " ".join(refated["fates"])
    assert full.sampled("chain").keys() == {forged.stranger}
    counts = {name: full.outcome["counts"][name] for name in ("duplicate", "chain")}
    assert (counts, full.outcome["violations"]) == ({"duplicate": 2, "chain": 1}, 3)

    submitted = run_submitted(
        *(master, audit_main),
        "-b",
        deployment.bootstrap,
        "--requests",
        deployment.requests[0],
        "--slack",
        "1s",
        "--output",
        "json",
    )
    assert submitted.returncode == 4, submitted.stderr[-3000:]
    result = json.loads(submitted.stdout.splitlines()[-1])
    varying = ("seconds", "snapshot_ms", "ranges")
    assert {name: result[name] for name in result if name not in varying} == {
        name: full.outcome[name] for name in full.outcome if name not in varying
    }


def test_spark_submit_passes_on_a_usage_error(master: str) -> None:
    done = run_submitted(master, audit_main, "-b", "127.0.0.1:1", "--samples", "-1")
    assert done.returncode == 2, done.stderr[-3000:]
    # spark-submit merges both output streams of a Python program into its standard output.
    assert "number of samples" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr
