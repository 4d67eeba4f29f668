"""Broken promises forged on real topics, among sound neighbours. Goal: each is named, and nothing else.

Method: requests, dispatch log, records and dead letters written by hand, then one audit over spans and one over each
origin.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from support.bed import Bed, new_bed
from support.broker import RunningBroker
from support.forged import Forged, named


@pytest.fixture(scope="module")
def bed(broker: RunningBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    with new_bed(broker.bootstrap_servers, tmp_path_factory.mktemp("rules")) as made:
        yield made


@pytest.mark.timeout(900)
def test_each_forgery_is_named(bed: Bed, spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    forged = Forged.on(bed)
    for number in range(20):
        forged.sound(key=b"k%d" % (number % 3))
    sound, late = forged.ask(("postdate-grace", b"1h")), forged.ask(("postdate-grace", b"1m"))
    for offset in (sound, forged.expect(late, "past-grace")):
        forged.deliver(offset)
        forged.commit(offset)
    _forge_order(forged)
    _forge_refusals(forged)
    letters, origin = f"{forged.requests}.dead-letters", ("postdate-origin", b"nothing")
    for topic, headers in ((letters, []), (letters, [origin]), (forged.target, [origin])):
        place = forged.write(topic, 0, b"k", b"v", [*headers])
        forged.expected[f"{topic}/0/{place}"] = {"unreadable"}
    forged.write(forged.target, 0, b"k", b"v", [("postdate-origin", b"another.topic/0/1")])
    found = forged.audited(capsys, strict=True)
    assert named(found) == forged.expected
    assert found["counts"]["overtaken"] == 2
    again = forged.audited(capsys, html=str(bed.directory / "page.html"))
    assert named(again) == forged.expected
    for name in ("counts", "outcomes", "samples"):
        assert again[name] == found[name]


def _forge_order(forged: Forged) -> None:
    """A pair that left the wrong way round in two transactions, one in one; one whose second came too late.

    By the time that they are written they are late, so they may have been parked: counted, and no violation.
    """
    for key, at_once in ((b"two", False), (b"one", True)):
        first, second = forged.ask(key=key, at=forged.due_ms), forged.ask(key=key, at=forged.due_ms + 1)
        forged.deliver(second, key=key, at=forged.due_ms + 1)
        forged.deliver(first, key=key)
        fates = [(second, forged.due_ms + 1, "delivered"), (first, forged.due_ms, "delivered")]
        for some in [fates] if at_once else [fates[:1], fates[1:]]:
            forged.commit(*some)
    forged.sound(key=b"late", at=forged.due_ms + 1)
    forged.sound(key=b"late")


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
