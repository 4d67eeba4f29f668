"""Returns forged on real topics, among sound neighbours. Goal: the audit reports each broken promise, and nothing else.
Method: handwritten returns, redeliveries and dispatch-log records. One audit uses chunks, one judges each origin, and
two with a state read the returns after the deliveries that they return.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from postdate.spark.audit import reading
from postdate.wire.headers import ATTEMPT, DUE, ERROR, FIRST_DUE, FIRST_ORIGIN, ORIGIN, RETRY, TOPIC
from support.audits.forged_topics import Forged, named, partition_of_key
from support.brokers.broker import RunningBroker
from support.deployments.sidecar_deployment import SidecarDeployment, new_deployment
from support.oracles.expected_records import Headers

_POLICY = b"base=1ms, factor=1"


@pytest.fixture(scope="module")
def deployment(broker: RunningBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SidecarDeployment]:
    with new_deployment(broker.bootstrap_servers, tmp_path_factory.mktemp("returns")) as made:
        yield made


@dataclass
class _Returns:
    """Returns of deliveries of a forged history; each is due a millisecond after its request."""

    forged: Forged

    def origin(self, offset: int) -> bytes:
        return f"{self.forged.requests}/0/{offset}".encode()

    def give_back(self, parent: int, *more: tuple[str, bytes | None], policy: bytes = _POLICY) -> tuple[int, int]:
        """Adds a return of the delivery of `parent`; returns its offset and due time."""
        left = [(ORIGIN, self.origin(parent)), (DUE, b"%d" % self.forged.due_ms)]
        sent = [*left, (TOPIC, self.forged.target.encode()), (RETRY, policy), *more]
        offset = self.forged.write(self.forged.requests, 0, b"k", b"v", sent)
        self.forged.sent[offset], self.forged.next = sent, offset + 1
        reader = self.forged.deployment.reader(self.forged.requests)
        stamps = {seen.offset: seen.timestamp_ms for seen in reader.to_end()}
        reader.close()
        return offset, stamps[offset] + 1

    def redeliver(self, offset: int, due_ms: int, root: int, *more: tuple[str, bytes | None], attempt: int = 1) -> None:
        """Adds the redelivery of a return, as a sidecar would write it, with the headers `more` last."""
        headers: Headers = [(ORIGIN, self.origin(offset)), (DUE, b"%d" % due_ms), (ATTEMPT, b"%d" % attempt)]
        headers += [(FIRST_ORIGIN, self.origin(root)), (FIRST_DUE, b"%d" % self.forged.due_ms), *more]
        self.forged.write(self.forged.target, partition_of_key(b"k"), b"k", b"v", headers)

    def sound(self, parent: int) -> int:
        """Adds a return with a correct redelivery."""
        offset, due_ms = self.give_back(parent, (ERROR, b"boom"))
        self.redeliver(offset, due_ms, parent, (ERROR, b"boom"))
        self.forged.commit((offset, due_ms, "delivered"))
        return offset


@pytest.mark.timeout(900)
def test_each_forged_return_is_reported(
    deployment: SidecarDeployment,
    spark: SparkSession,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reading, "CHUNKS_ROWS_MIN", 0)
    forged = Forged.on(deployment)
    returns = _Returns(forged)
    parent = [forged.sound() for _ in range(20)][-1]
    once = returns.sound(parent)
    returns.sound(parent)
    named_policy, due_ms = returns.give_back(parent, policy=b"slow")
    returns.redeliver(named_policy, due_ms, parent)
    forged.commit((named_policy, due_ms, "delivered"), policies=[(parent, "slow", "base=1ms")])
    for verdict, attempt, root, more in (
        ("mismatch", 2, parent, []),
        ("mismatch", 1, once, []),
        ("mismatch", 1, parent, [(ERROR, b"boom")]),
        ("mismatch", 1, parent, [(RETRY, _POLICY)]),
    ):
        offset, due_ms = returns.give_back(parent)
        returns.redeliver(forged.expect(offset, verdict), due_ms, root, *more, attempt=attempt)
        forged.commit((offset, due_ms, "delivered"))
    offset, due_ms = returns.give_back(parent, policy=b"base=1h")
    returns.redeliver(forged.expect(offset, "early"), due_ms - 1 + 3_600_000, parent)
    forged.commit((offset, due_ms - 1 + 3_600_000, "delivered"))
    offset, due_ms = returns.give_back(once, (ATTEMPT, b"2"), (FIRST_ORIGIN, returns.origin(parent)))
    returns.redeliver(forged.expect(offset, "contradiction"), due_ms, parent, attempt=3)
    forged.commit((offset, due_ms, "delivered"))
    offset, due_ms = returns.give_back(parent)
    for _ in range(2):
        returns.redeliver(forged.expect(offset, "duplicate"), due_ms, parent)
    forged.commit((offset, due_ms, "delivered"))
    offset, due_ms = returns.give_back(parent)
    forged.commit((forged.expect(offset, "missing", "contradiction"), due_ms, "delivered"))
    for attempts, verdict in ((b"2", "false-refusal"), (b"1", "")):
        offset, _ = returns.give_back(once, (ATTEMPT, b"1"), policy=b"base=1ms,attempts=" + attempts)
        forged.bury(forged.expect(offset, verdict) if verdict else offset, "attempts-exhausted")
        forged.commit((offset, 0, "dead"))
    for options in ({}, {"html": str(deployment.directory / "page.html")}):
        result = forged.audited(capsys, **options)
        assert named(result) == forged.expected
        assert (result["counts"]["dead"], result["counts"]["policy-unknown"]) == (1, 0)
        assert result["returned_again"] == 11


@pytest.mark.timeout(900)
def test_runs_with_a_state_know_the_parents_and_policies_of_runs_before(
    deployment: SidecarDeployment, spark: SparkSession, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The policy is in a dispatch-log record of the first run only."""
    forged, state = Forged.on(deployment), {"state": str(tmp_path / "state")}
    returns = _Returns(forged)
    parent = forged.ask()
    forged.deliver(parent)
    forged.commit(parent, policies=[(parent, "slow", "base=1ms")])
    once = returns.sound(parent)
    result = forged.audited(capsys, **state)
    assert (result["exit"], result["clean"], result["returned_again"]) == (0, True, 0)
    assert result["counts"]["delivered"] == 2
    again, due_ms = returns.give_back(parent, policy=b"slow")
    returns.redeliver(again, due_ms, parent)
    forged.commit((again, due_ms, "delivered"))
    unknown, due_ms = returns.give_back(parent, policy=b"quick")
    returns.redeliver(unknown, due_ms, parent)
    forged.commit((unknown, due_ms, "delivered"))
    offset, due_ms = returns.give_back(once, (ATTEMPT, b"4"), (FIRST_ORIGIN, returns.origin(parent)))
    returns.redeliver(forged.expect(offset, "contradiction"), due_ms, parent, attempt=5)
    forged.commit((offset, due_ms, "delivered"))
    result = forged.audited(capsys, **state)
    assert named(result) == forged.expected
    assert (result["returned_again"], result["outcomes"]["reasons"]) == (2, {"policy-unknown": 1})
    assert result["state"]["counts"]["delivered"] == 3
