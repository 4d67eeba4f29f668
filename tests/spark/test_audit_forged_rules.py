"""Broken promises forged on real topics, among sound neighbours. Goal: the audit reports each broken promise, and
nothing else. Method: handwritten requests, dispatch log, records and dead letters. One audit judges each origin, one
uses chunks, and one judges each origin of topics that are not cached.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from postdate.spark.audit import reading, steps
from postdate.spark.audit.ranges import Causes, fix_causes
from postdate.spark.rules.verdicts import ENDINGS
from postdate.wire.headers import ID
from support.audits.forged_topics import Forged, named
from support.brokers.broker import RunningBroker
from support.deployments.sidecar_deployment import SidecarDeployment, new_deployment


@pytest.fixture(scope="module")
def deployment(broker: RunningBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SidecarDeployment]:
    with new_deployment(broker.bootstrap_servers, tmp_path_factory.mktemp("rules")) as made:
        yield made


@pytest.mark.timeout(900)
def test_each_forgery_is_reported(
    deployment: SidecarDeployment,
    spark: SparkSession,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(steps, "ORDER_RECORDS_MAX", 2)  # a strict audit compares more
    forged = Forged.on(deployment)
    for number in range(20):
        forged.sound(key=b"k%d" % (number % 3))
    sound, late = forged.ask(("postdate-grace", b"1h")), forged.ask(("postdate-grace", b"1m"))
    for offset in (sound, forged.expect(late, "past-grace")):
        forged.deliver(offset)
        forged.commit(offset)
    _forge_order(forged)
    _forge_refusals(forged)
    _forge_ends_without_a_cause(forged)
    dead_letters, origin = f"{forged.requests}.dead-letters", ("postdate-origin", b"nothing")
    for topic, headers in ((dead_letters, []), (dead_letters, [origin]), (forged.target, [origin])):
        place = forged.write(topic, 0, b"k", b"v", [*headers])
        forged.expected[f"{topic}/0/{place}"] = {"unreadable"}
    forged.write(forged.target, 0, b"k", b"v", [("postdate-origin", b"another.topic/0/1")])
    result = forged.audited(capsys, strict=True)
    assert named(result) == forged.expected
    assert (result["order_checked"], result["counts"]["overtaken"]) == (True, 2)
    monkeypatch.setattr(reading, "CHUNKS_ROWS_MIN", 0)
    for html in (None, str(deployment.directory / "page.html")):
        again = forged.audited(capsys, strict=True, html=html)
        assert named(again) == forged.expected
        for name in ("counts", "outcomes", "samples"):
            assert again[name] == result[name]


@pytest.mark.timeout(900)
def test_an_effect_of_a_future_request_is_a_violation(
    deployment: SidecarDeployment,
    spark: SparkSession,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The topics have a fate and a record for offsets after the end of the request topic, and a request that arrives
    and is delivered after the audit has fixed that end. The first audit begins with chunks."""
    forged, state = Forged.on(deployment), str(tmp_path / "state")
    for _ in range(3):
        forged.sound()
    forged.commit(forged.expect(1_000, "orphan"))
    forged.deliver(forged.expect(1_001, "orphan"))

    def racing(*fixed: Any) -> Causes:
        result = fix_causes(*fixed)
        forged.sound()
        return result

    for more in ({}, {"state": state}):
        with monkeypatch.context() as patched:
            patched.setattr(reading, "fix_causes", racing)
            if not more:
                patched.setattr(reading, "CHUNKS_ROWS_MIN", 0)
            result = forged.audited(capsys, **more)
        assert named(result) == forged.expected
        assert (result["counts"]["orphan"], result["counts"]["delivered"]) == (2, forged.next - 1)
    result = forged.audited(capsys, state=state)
    assert (result["counts"]["orphan"], result["counts"]["delivered"], result["state"]["standing"]) == (0, 1, 2)


@pytest.mark.timeout(900)
def test_runs_with_a_state_compare_their_messages_with_earlier_ones(
    deployment: SidecarDeployment,
    spark: SparkSession,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A message leaves in the first run, and an overtaken one in the second. Each run has too many messages to compare
    all of them, unless it is strict. The third run is not strict, and reports that their order is unknown."""
    monkeypatch.setattr(steps, "ORDER_RECORDS_MAX", 2)
    forged, state = Forged.on(deployment), {"state": str(tmp_path / "state"), "slack_ms": 3_600_000}
    first, second = forged.ask(), forged.ask(at=forged.due_ms + 1)
    forged.deliver(second, at=forged.due_ms + 1)
    forged.commit((second, forged.due_ms + 1, "delivered"))
    for _ in range(2):
        forged.sound(key=b"another")
    result = forged.audited(capsys, strict=True, **state)
    counts = {name: count for name, count in result["counts"].items() if count}
    assert (result["exit"], result["clean"], result["order_checked"]) == (0, True, True)
    assert counts == {"delivered": 3, "pending": 1}
    forged.deliver(first)
    forged.commit(first)
    result = forged.audited(capsys, strict=True, **state)
    counts = {name: count for name, count in result["counts"].items() if count}
    assert (result["exit"], result["order_checked"], counts) == (0, True, {"overtaken": 1})
    for _ in range(3):
        forged.sound(key=b"another")
    result = forged.audited(capsys, **state)
    assert (result["exit"], result["clean"], result["order_checked"]) == (0, False, False)
    assert (result["state"]["open"], result["state"]["counts"]["overtaken"]) == (0, 1)
    result = forged.audited(capsys)
    assert (result["exit"], result["clean"], result["order_checked"]) == (0, False, False)


def _forge_order(forged: Forged) -> None:
    """Forges four pairs of messages. Two pairs are out of order, in two transactions and in one. In the third pair, the
    first message was replaced and still left, behind the other. In the fourth, the second request came too late.

    All messages are late when they are written, so they may have been parked. So the audit counts the disorders, and
    reports no violation of the order.
    """
    for key, at_once in ((b"two", False), (b"one", True)):
        first, second = forged.ask(key=key, at=forged.due_ms), forged.ask(key=key, at=forged.due_ms + 1)
        forged.deliver(second, key=key, at=forged.due_ms + 1)
        forged.deliver(first, key=key)
        fates = [(second, forged.due_ms + 1, "delivered"), (first, forged.due_ms, "delivered")]
        for some in [fates] if at_once else [fates[:1], fates[1:]]:
            forged.commit(*some)
    replaced, instead = (forged.ask(("postdate-id", b"one"), key=b"id") for _ in range(2))
    forged.deliver(instead, key=b"id", id=b"one")
    forged.deliver(forged.expect(replaced, "contradiction"), key=b"id", id=b"one")
    forged.commit((replaced, forged.due_ms, "replaced"), (instead, forged.due_ms, "delivered"))
    forged.sound(key=b"late", at=forged.due_ms + 1)
    forged.sound(key=b"late")


def _forge_ends_without_a_cause(forged: Forged) -> None:
    """Forges three losses, each with a fate that fits its request, beside correct messages with the same fate: one
    replaced by a request that no owner had read yet, one delivered by an owner that had not read it, and one with a
    dead letter long before it was due, as if its target had failed."""
    for verdict in ("contradiction", "replaced"):
        id_, key = (ID, verdict.encode()), verdict.encode()
        replaced = forged.expect(forged.ask(id_, key=key), verdict)
        if verdict == "contradiction":
            forged.commit((replaced, forged.due_ms, "replaced"))
        instead = forged.ask(id_, key=key)
        forged.deliver(instead, key=key, id=verdict.encode())
        fates = [(replaced, forged.due_ms, "replaced")] if verdict == "replaced" else []
        forged.commit(*fates, (instead, forged.due_ms, "delivered"))
    unread = forged.expect(forged.ask(), "contradiction")
    forged.deliver(unread)
    forged.commit(unread, next_request=unread)
    ahead_ms = int(time.time() * 1_000) + 3_600_000
    for reason, due_ms, verdict in (
        ("target-unavailable", ahead_ms, "early"),
        ("target-unavailable", forged.due_ms, "dead"),
        ("too-large", ahead_ms, "dead"),
    ):
        buried = forged.expect(forged.ask(at=due_ms), verdict)
        forged.bury(buried, reason)
        forged.commit((buried, due_ms, "dead"))
    forged.expected = {origin: result for origin, result in forged.expected.items() if result.isdisjoint(ENDINGS)}


def _forge_refusals(forged: Forged) -> None:
    for reason, spoils in {
        "missing-time": False,
        "missing-target": False,
        "bad-time": False,
        "conflicting-time": True,
        "unknown-header": True,
        "duplicate-header": True,
        "bad-id": True,
    }.items():
        bad = {
            "conflicting-time": ("postdate-delay", b"1s"),
            "unknown-header": ("postdate-dealy", b"1s"),
            "duplicate-header": ("postdate-topic", b"x"),
            "bad-id": ("postdate-id", b""),
        }
        refused = forged.expect(forged.ask(), "false-refusal")
        offsets = [refused, forged.ask(bad[reason])] if spoils else [refused]
        for offset in offsets:
            forged.bury(offset, reason)
            forged.commit((offset, 0, "dead"))
