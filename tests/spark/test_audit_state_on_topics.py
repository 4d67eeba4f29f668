"""Audits with a state on a real broker. Goal: each audit ends with the exit code and the sentence that its operator
needs. Method: handwritten records, and audits in the session of these tests. One audit reads several request topics,
since that costs little more than one topic.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from postdate.spark.audit.job import run_audit
from postdate.spark.audit.options import AuditOptions
from postdate.spark.state.store import StateStore
from postdate.wire.dispatch_log import Occurred
from postdate.wire.headers import DUE, ID, ORIGIN, TOPIC
from support.audits.forged_topics import Forged, audited_together, expected_of, named, partition_of_key
from support.brokers.broker import RunningBroker
from support.deployments.sidecar_deployment import SidecarDeployment, new_deployment

_MINUTE_MS = 60_000


@pytest.fixture(scope="module")
def deployment(broker: RunningBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SidecarDeployment]:
    with new_deployment(broker.bootstrap_servers, tmp_path_factory.mktemp("states")) as made:
        yield made


@dataclass
class _Schedule:
    """A forged schedule that is due each minute."""

    forged: Forged
    start_ms: int = field(init=False)
    origin: int = field(init=False)

    def __post_init__(self) -> None:
        forged = self.forged
        self.start_ms = forged.due_ms - forged.due_ms % _MINUTE_MS
        asked = [(TOPIC, forged.target.encode()), (ID, b"s"), ("postdate-every", b"1m")]
        start = ("postdate-start", b"%d" % self.start_ms)
        self.origin = forged.write(forged.requests, 0, b"k", b"v", [*asked, start])
        forged.next = self.origin + 1
        forged.commit((self.origin, self.start_ms, "stored"))

    def decide(self, number: int) -> None:
        nominal_ms = self.start_ms + (number - 1) * _MINUTE_MS
        self.forged.commit(
            Occurred(self.origin, self.start_ms, "occurred", number, nominal_ms, nominal_ms + _MINUTE_MS)
        )

    def deliver(self, number: int) -> None:
        nominal_ms = self.start_ms + (number - 1) * _MINUTE_MS
        own = [(ORIGIN, f"{self.forged.requests}/0/{self.origin}".encode()), (DUE, b"%d" % nominal_ms), (ID, b"s")]
        own += [("postdate-occurrence", b"%d" % number), ("postdate-next", b"%d" % (nominal_ms + _MINUTE_MS))]
        self.forged.write(self.forged.target, partition_of_key(b"k"), b"k", b"v", [*own])


def _add_strays(forged: Forged) -> None:
    """Adds a break of the chain, a dead letter and a record without an origin, and an unreadable answer."""
    forged.sound()
    forged.seq += 1  # a record of the dispatch log is missing
    offset = forged.ask()
    forged.deliver(offset)
    log, dead_letters, verdicts = (f"{forged.requests}.{name}" for name in ("dispatch-log", "dead-letters", "verdicts"))
    forged.expected = {
        f"{log}/0/{forged.commit(offset)}": {"chain"},
        f"{dead_letters}/0/{forged.write(dead_letters, 0, b'k', b'v', [])}": {"unreadable"},
        f"{forged.target}/0/{forged.write(forged.target, 0, b'k', b'v', [(ORIGIN, b'nothing')])}": {"unreadable"},
        f"{verdicts}/0/{forged.write(verdicts, 0, None, b'{}', [])}": {"false-verdict"},
    }


@contextmanager
def _failing_commits(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """In this context, an audit with a state ends with a Spark error while it commits."""

    def failing(*_: Any) -> None:
        spark.sql("SELECT nowhere")

    with monkeypatch.context() as patched:
        patched.setattr(StateStore, "commit", failing)
        yield


def _counts(found: dict[str, Any]) -> dict[str, int]:
    """Returns the counts of a state that are not 0."""
    return {verdict: count for verdict, count in found["state"]["counts"].items() if count}


@pytest.mark.timeout(900)
def test_each_run_finds_the_new_violations(
    deployment: SidecarDeployment,
    spark: SparkSession,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One state of four request topics. The first run ends with a Spark error while it commits, and is repeated.
    `strayed` gets records that belong to no request in each of two runs. Three requests of `expired` leave their topic
    between the runs, one of them with its fate. Two messages of `copied` get a second record. For a schedule, the
    second run reads a correct occurrence, an occurrence that was decided again, and a second record of an occurrence.
    """
    strayed, expired, copied, recurring = histories = [Forged.on(deployment) for _ in range(4)]
    options: dict[str, Any] = {"state": str(tmp_path / "state"), "slack_ms": 3_600_000}
    _add_strays(strayed)
    expired.sound()
    sound, schedule = [copied.sound() for _ in range(4)], _Schedule(recurring)
    for number in (1, 2):
        schedule.decide(number)
        schedule.deliver(number)

    topics = tuple(one.requests for one in histories)
    with _failing_commits(spark, monkeypatch):
        assert run_audit(AuditOptions(deployment.bootstrap, topics, settle_ms=1_000, **options)) == 1
    assert "error: Spark could not read or compare the topics: " in capsys.readouterr().err

    found = audited_together(histories, capsys, **options)
    assert (named(found), found["exit"], found["state"]["standing"]) == (strayed.expected, 4, 0)
    assert _counts(found) == {"delivered": 7, "pending": 1, "chain": 1, "unreadable": 2, "false-verdict": 1}
    assert (found["schedules"]["judged"], found["schedules"]["occurrences"]["verified"]) == (1, 2)
    assert found["state"]["open"] == 1

    _add_strays(strayed)
    for _ in range(3):
        expired.ask()
    expired.commit(expired.next - 1)
    expired.delete_before(expired.requests, 0, expired.next)
    copied.expect(_copied(copied, sound[1]), "duplicate", "mismatch")
    copied.deliver(copied.expect(sound[2], "duplicate"))
    schedule.decide(3)
    for number in (3, 1):
        schedule.deliver(number)
    schedule.decide(2)
    recurring.expect(schedule.origin, "duplicate")
    found = audited_together(histories, capsys, **options)
    assert (named(found), found["exit"], found["state"]["standing"]) == (expected_of(histories), 4, 4)
    assert found["outcomes"]["reasons"] == {"request-expired": 3}
    assert _counts(found).items() >= {"chain": 2, "unreadable": 4, "false-verdict": 2}.items()
    counts = found["schedules"]["occurrences"]
    assert (counts["occurred"], counts["verified"], counts["repeated"]) == (1, 1, 2)
    each = found["schedules"]["each"][0]["occurrences"]
    assert (each["verified"], each["repeated"]) == (3, 2)

    found = audited_together(histories, capsys, **options)
    assert (found["violations"], found["outcomes"]["reasons"]) == (0, {}), "once"
    found = recurring.audited(capsys, slack_ms=3_600_000)
    assert (named(found), found["schedules"]["occurrences"]["repeated"]) == (recurring.expected, 2)


def _copied(forged: Forged, origin: int) -> int:
    """Writes a record of a request with another value; returns the offset of the request."""
    headers = [(ORIGIN, f"{forged.requests}/0/{origin}".encode()), (DUE, b"%d" % forged.due_ms)]
    forged.write(forged.target, partition_of_key(b"k"), b"k", b"another", [*headers])
    return origin


@pytest.mark.timeout(900)
def test_an_overdue_message_is_reported_after_a_run_that_did_not_commit(
    deployment: SidecarDeployment,
    spark: SparkSession,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Between the runs, no record is written: only the time passes, for which a shorter slack stands. The second run
    writes that the message is overdue, and ends before its commit.
    """
    forged = Forged.on(deployment)
    forged.sound()
    waiting = forged.ask()
    forged.commit((waiting, forged.due_ms, "stored"))
    state = str(tmp_path / "state")
    assert forged.audited(capsys, state=state, slack_ms=3_600_000)["exit"] == 0

    options = AuditOptions(deployment.bootstrap, (forged.requests,), state=state, slack_ms=1_000, settle_ms=1_000)
    with _failing_commits(spark, monkeypatch):
        assert run_audit(options) == 1
    capsys.readouterr()

    forged.expect(waiting, "missing")
    found = forged.audited(capsys, state=state, slack_ms=1_000)
    assert (named(found), found["exit"]) == (forged.expected, 4)
