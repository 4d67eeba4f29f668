"""Broken promises forged on real topics, among sound neighbours. Goal: each is named, and nothing else.

Method: requests, dispatch log, records and dead letters written by hand, then one audit over each origin, one over
chunks, and one over each origin of topics that are not cached.
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
def env(broker: RunningBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SidecarDeployment]:
    with new_deployment(broker.bootstrap_servers, tmp_path_factory.mktemp("rules")) as made:
        yield made


@pytest.mark.timeout(900)
def test_each_forgery_is_named(
    env: SidecarDeployment, spark: SparkSession, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps, "ORDER_RECORDS_MAX", 2)  # a strict audit compares more
    forged = Forged.on(env)
    for number in range(20):
        forged.sound(key=b"k%d" % (number % 3))
    sound, late = forged.ask(("postdate-grace", b"1h")), forged.ask(("postdate-grace", b"1m"))
    for offset in (sound, forged.expect(late, "past-grace")):
        forged.deliver(offset)
        forged.commit(offset)
    _forge_order(forged)
    _forge_refusals(forged)
    _forge_ends_without_a_cause(forged)
    letters, origin = f"{forged.requests}.dead-letters", ("postdate-origin", b"nothing")
    for topic, headers in ((letters, []), (letters, [origin]), (forged.target, [origin])):
        place = forged.write(topic, 0, b"k", b"v", [*headers])
        forged.expected[f"{topic}/0/{place}"] = {"unreadable"}
    forged.write(forged.target, 0, b"k", b"v", [("postdate-origin", b"another.topic/0/1")])
    found = forged.audited(capsys, strict=True)
    assert named(found) == forged.expected
    assert (found["order_checked"], found["counts"]["overtaken"]) == (True, 2)
    monkeypatch.setattr(reading, "CHUNKS_ROWS_MIN", 0)
    for html in (None, str(env.directory / "page.html")):
        again = forged.audited(capsys, strict=True, html=html)
        assert named(again) == forged.expected
        for name in ("counts", "outcomes", "samples"):
            assert again[name] == found[name]


@pytest.mark.timeout(900)
def test_no_effect_may_be_of_a_request_that_is_still_to_come(
    env: SidecarDeployment,
    spark: SparkSession,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A fate and a record of offsets behind the end of the request topic, and a request that arrives and is delivered
    after the audit has fixed that end. The first audit begins with chunks."""
    forged, state = Forged.on(env), str(tmp_path / "state")
    for _ in range(3):
        forged.sound()
    forged.commit(forged.expect(1_000, "orphan"))
    forged.deliver(forged.expect(1_001, "orphan"))

    def racing(*fixed: Any) -> Causes:
        found = fix_causes(*fixed)
        forged.sound()
        return found

    for more in ({}, {"state": state}):
        with monkeypatch.context() as patched:
            patched.setattr(reading, "fix_causes", racing)
            if not more:
                patched.setattr(reading, "CHUNKS_ROWS_MIN", 0)
            found = forged.audited(capsys, **more)
        assert named(found) == forged.expected
        assert (found["counts"]["orphan"], found["counts"]["delivered"]) == (2, forged.next - 1)
    found = forged.audited(capsys, state=state)
    assert (found["counts"]["orphan"], found["counts"]["delivered"], found["state"]["standing"]) == (0, 1, 2)


@pytest.mark.timeout(900)
def test_runs_with_a_state_compare_their_messages_with_those_before(
    env: SidecarDeployment,
    spark: SparkSession,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is due later leaves in the first run, what it has overtaken in the second. Each run has too many messages to
    compare all of them, unless it is strict; the third is not, and says that their order is not known."""
    monkeypatch.setattr(steps, "ORDER_RECORDS_MAX", 2)
    forged, state = Forged.on(env), {"state": str(tmp_path / "state"), "slack_ms": 3_600_000}
    first, second = forged.ask(), forged.ask(at=forged.due_ms + 1)
    forged.deliver(second, at=forged.due_ms + 1)
    forged.commit((second, forged.due_ms + 1, "delivered"))
    for _ in range(2):
        forged.sound(key=b"another")
    found = forged.audited(capsys, strict=True, **state)
    counts = {name: count for name, count in found["counts"].items() if count}
    assert (found["exit"], found["clean"], found["order_checked"]) == (0, True, True)
    assert counts == {"delivered": 3, "pending": 1}
    forged.deliver(first)
    forged.commit(first)
    found = forged.audited(capsys, strict=True, **state)
    counts = {name: count for name, count in found["counts"].items() if count}
    assert (found["exit"], found["order_checked"], counts) == (0, True, {"overtaken": 1})
    for _ in range(3):
        forged.sound(key=b"another")
    found = forged.audited(capsys, **state)
    assert (found["exit"], found["clean"], found["order_checked"]) == (0, False, False)
    assert (found["state"]["open"], found["state"]["counts"]["overtaken"]) == (0, 1)
    found = forged.audited(capsys)
    assert (found["exit"], found["clean"], found["order_checked"]) == (0, False, False)


def _forge_order(forged: Forged) -> None:
    """A pair that left the wrong way round in two transactions, one in one; one that was replaced and left all the
    same, behind the other; one whose second came too late.

    By the time that they are written they are late, so they may have been parked: counted, and no violation.
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
    """Three losses, each with a fate that fits its request, beside sound messages with the same fate: one replaced by a
    request that nobody had read yet, one delivered by an owner that had not read it, one buried long before it was due,
    as if its target had been tried."""
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
    forged.expected = {origin: found for origin, found in forged.expected.items() if found.isdisjoint(ENDINGS)}


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
