"""Audits with a state of topics on a real broker. Goal: each ends with the exit code and the sentence that its operator
needs. Method: records written by hand, and audits in the session of these tests.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from postdate.spark.audit.job import run_audit
from postdate.spark.audit.options import AuditOptions
from postdate.spark.state.store import StateStore
from postdate.wire.dispatch_log import Occurred
from postdate.wire.headers import DUE, ID, ORIGIN, TOPIC
from support.bed import Bed, new_bed
from support.broker import RunningBroker
from support.forged import Forged, named, place_of

_MINUTE_MS = 60_000


@pytest.fixture(scope="module")
def bed(broker: RunningBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    with new_bed(broker.bootstrap_servers, tmp_path_factory.mktemp("states")) as made:
        yield made


@pytest.mark.timeout(600)
def test_an_error_of_spark_while_a_run_commits_is_one_sentence(
    bed: Bed, spark: SparkSession, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forged = Forged.on(bed)
    forged.sound()
    options = AuditOptions(bed.bootstrap, (forged.requests,), settle_ms=1_000, state=str(tmp_path / "state"))

    def failing(*_: Any) -> None:
        spark.sql("SELECT nowhere")

    with monkeypatch.context() as patched:
        patched.setattr(StateStore, "commit", failing)
        assert run_audit(options) == 1
    assert "error: Spark could not read or compare the topics: " in capsys.readouterr().err
    assert run_audit(options) == 0, "the next run repeats what was not kept"


@pytest.mark.timeout(600)
def test_the_counts_of_a_state_contain_what_belongs_to_no_request(
    bed: Bed, spark: SparkSession, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A break of the chain, a dead letter and a record without an origin, and an answer that cannot be read, in each of
    two runs."""
    forged, state = Forged.on(bed), str(tmp_path / "state")
    for run in (1, 2):
        forged.sound()
        forged.seq += 1  # a record of the dispatch log is missing
        forged.sound()
        forged.write(f"{forged.requests}.dead-letters", 0, b"k", b"v", [])
        forged.write(forged.target, 0, b"k", b"v", [("postdate-origin", b"nothing")])
        forged.write(f"{forged.requests}.verdicts", 0, None, b"{}", [])
        found = forged.audited(capsys, state=state)
        counts = {verdict: count for verdict, count in found["state"]["counts"].items() if count}
        assert counts == {"delivered": 2 * run, "chain": run, "unreadable": 2 * run, "false-verdict": run}
        assert found["state"]["standing"] == 4 * (run - 1)


@pytest.mark.timeout(600)
def test_requests_that_left_their_topic_between_two_runs_are_not_verified(
    bed: Bed, spark: SparkSession, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Three requests that no run has read; of one of them the fate is still there."""
    forged, state = Forged.on(bed), str(tmp_path / "state")
    forged.sound()
    assert forged.audited(capsys, state=state)["exit"] == 0
    for _ in range(3):
        forged.ask()
    forged.commit(forged.next - 1)
    forged.delete_before(forged.requests, 0, forged.next)
    found = forged.audited(capsys, state=state)
    assert (found["violations"], found["outcomes"]["reasons"]) == (0, {"request-expired": 3})
    found = forged.audited(capsys, state=state)
    assert (found["exit"], found["outcomes"]["reasons"]) == (0, {}), "once"


@pytest.mark.timeout(600)
def test_a_later_copy_is_compared_with_the_request_in_its_topic(
    bed: Bed, spark: SparkSession, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    forged, state = Forged.on(bed), str(tmp_path / "state")
    sound = [forged.sound() for _ in range(4)]
    assert forged.audited(capsys, state=state)["exit"] == 0
    forged.expect(_copied(forged, sound[1]), "duplicate", "mismatch")
    forged.deliver(forged.expect(sound[2], "duplicate"))
    found = forged.audited(capsys, state=state)
    assert (named(found), found["exit"]) == (forged.expected, 4)


@pytest.mark.timeout(600)
def test_a_schedule_is_verified_from_run_to_run(
    bed: Bed, spark: SparkSession, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The second run reads an occurrence that is right, one that was decided again, and the second record of one."""
    forged = Forged.on(bed)
    options = {"state": str(tmp_path / "state"), "slack_ms": 3_600_000}
    start_ms = forged.due_ms - forged.due_ms % _MINUTE_MS
    asked = [(TOPIC, forged.target.encode()), (ID, b"s"), ("postdate-every", b"1m")]
    origin = forged.write(forged.requests, 0, b"k", b"v", [*asked, ("postdate-start", b"%d" % start_ms)])
    forged.next = origin + 1
    forged.commit((origin, start_ms, "stored"))

    def decide(number: int) -> None:
        nominal_ms = start_ms + (number - 1) * _MINUTE_MS
        forged.commit(Occurred(origin, start_ms, "occurred", number, nominal_ms, nominal_ms + _MINUTE_MS))

    def deliver(number: int) -> None:
        nominal_ms = start_ms + (number - 1) * _MINUTE_MS
        own = [(ORIGIN, f"{forged.requests}/0/{origin}".encode()), (DUE, b"%d" % nominal_ms), (ID, b"s")]
        own += [("postdate-occurrence", b"%d" % number), ("postdate-next", b"%d" % (nominal_ms + _MINUTE_MS))]
        forged.write(forged.target, place_of(b"k"), b"k", b"v", [*own])

    for number in (1, 2):
        decide(number)
        deliver(number)
    found = forged.audited(capsys, **options)
    assert (found["exit"], found["counts"]["pending"], found["state"]["open"]) == (0, 1, 1)
    assert (found["schedules"]["judged"], found["schedules"]["occurrences"]["verified"]) == (1, 2)
    decide(3)
    deliver(3)
    deliver(1)
    decide(2)
    forged.expect(origin, "duplicate")
    found = forged.audited(capsys, **options)
    assert (named(found), found["exit"]) == (forged.expected, 4)
    counts = found["schedules"]["occurrences"]
    assert (counts["occurred"], counts["verified"], counts["repeated"]) == (1, 1, 2)
    each = found["schedules"]["each"][0]["occurrences"]
    assert (each["verified"], each["repeated"]) == (3, 2)
    found = forged.audited(capsys, slack_ms=3_600_000)
    assert (named(found), found["schedules"]["occurrences"]["repeated"]) == (forged.expected, 2)


def _copied(forged: Forged, origin: int) -> int:
    """Writes a record of a request with another value; returns the offset of the request."""
    headers = [(ORIGIN, f"{forged.requests}/0/{origin}".encode()), (DUE, b"%d" % forged.due_ms)]
    forged.write(forged.target, place_of(b"k"), b"k", b"another", [*headers])
    return origin
