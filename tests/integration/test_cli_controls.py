"""Goal: `cancel`, `reschedule` and `send --wait-verdict` find their message in every partition, and print its true
outcome.

Method: one real broker and one real sidecar; the commands run against four partitions, two of them as processes and the
others in this one. What arrived, and what did not, is judged from the topics by the oracle at the end.
"""

from __future__ import annotations

import json

import pytest

from postdate.sidecar.errors import Exit
from postdate.wire.headers import DUE
from support.bed import Bed
from support.command import call_postdate, run_postdate, said_by
from support.oracle import Seen, gather
from support.sidecars import Sidecar

WAIT = ("--wait-verdict", "--timeout", "60s")


def start(bed: Bed, verdicts: str = "control", **topic: object) -> Sidecar:
    sidecar = bed.new_sidecar()
    sidecar.topic = {"verdicts": verdicts, **topic}
    sidecar.start()
    sidecar.wait_for_shards(4)
    return sidecar


@pytest.fixture
def requests(bed: Bed) -> str:
    return bed.new_requests(4)


@pytest.fixture
def target(bed: Bed) -> str:
    return bed.new_target()


def command(bed: Bed, *arguments: str) -> list[str]:
    """What a command prints; it must succeed."""
    return said_by(*arguments, "-b", bed.bootstrap).splitlines()


def refused(bed: Bed, *arguments: str) -> tuple[str, str]:
    """The verdict that a command prints, and its sentence; it must fail."""
    done = call_postdate(*arguments, "-b", bed.bootstrap)
    assert done.exit_code == Exit.FAILED, done.stderr
    return done.stdout.splitlines()[1], done.stderr


def arrived(bed: Bed, target: str, count: int) -> list[Seen]:
    """The first messages on the target."""
    reader = bed.reader(target)
    try:
        reader.until(lambda: len(reader.records) >= count, f"{count} messages on {target}")
        return reader.records
    finally:
        reader.close()


@pytest.mark.parametrize("by", ["id", "origin"])
def test_a_message_is_moved_and_then_cancelled(bed: Bed, requests: str, target: str, by: str) -> None:
    start(bed)
    given = ["--requests", requests, "--topic", target, "--key", "k", "--delay", "1h"]
    (origin,) = command(bed, "send", *given, "--id", "order-9")
    named = ["--requests", requests, "--id", "order-9"] if by == "id" else ["--origin", origin]
    moved = command(bed, "reschedule", *named, "--delay", "2h", *WAIT)
    assert moved[1] == f"rescheduled {origin}"
    cancelled = command(bed, "cancel", *named, *WAIT)
    assert cancelled[1] == f"cancelled {origin}"
    assert {line.rpartition("/")[0] for line in (origin, moved[0], cancelled[0])} == {origin.rpartition("/")[0]}
    again, sentence = refused(bed, "cancel", *named, *WAIT)
    assert (again, "no such message was pending" in sentence) == ("not-found", True)
    assert refused(bed, "reschedule", *named, "--delay", "1s", *WAIT)[0] == "not-found"
    bed.wait_for_ends(5)
    assert bed.judge([]).delivered == []


def test_a_delivered_message_can_no_longer_be_changed(bed: Bed, requests: str, target: str) -> None:
    start(bed)
    (origin,) = command(bed, "send", "--requests", requests, "--topic", target, "--delay", "1ms", "--id", "order-9")
    (seen,) = arrived(bed, target, 1)
    assert seen.origin.decode() == origin
    for named in (["--requests", requests, "--id", "order-9"], ["--origin", origin]):
        for control in (["cancel"], ["reschedule", "--delay", "1h"]):
            said, sentence = refused(bed, *control, *named, *WAIT)
            assert (said, "had already been delivered" in sentence) == (f"too-late {origin}", True)


def test_a_message_moved_forward_arrives_by_its_new_time(bed: Bed, requests: str, target: str) -> None:
    start(bed)
    given = ["--requests", requests, "--topic", target, "--value", "v", "--delay", "1h"]
    (origin,) = command(bed, "send", *given)
    moved = ["reschedule", "--origin", origin, "--delay", "300ms", "--output", "json", *WAIT]
    (told,) = map(json.loads, command(bed, *moved))
    assert (told["verdict"], told["of"]) == ("rescheduled", origin)
    (seen,) = arrived(bed, target, 1)
    assert (seen.origin.decode(), seen.value) == (origin, b"v")
    assert int(seen.last(DUE)) == told["due_ms"] <= seen.timestamp_ms


@pytest.mark.parametrize("by", ["id", "origin"])
def test_a_message_is_delivered_now_and_never_early(bed: Bed, requests: str, target: str, by: str) -> None:
    start(bed)
    given = ["--requests", requests, "--topic", target, "--value", "v", "--delay", "1h", "--id", "order-9"]
    (origin,) = command(bed, "send", *given)
    named = ["--requests", requests, "--id", "order-9"] if by == "id" else ["--origin", origin]
    (told,) = map(json.loads, command(bed, "deliver", *named, "--output", "json", *WAIT))
    assert (told["verdict"], told["of"]) == ("rescheduled", origin)
    (seen,) = arrived(bed, target, 1)
    assert (seen.origin.decode(), seen.value) == (origin, b"v")
    assert int(seen.last(DUE)) == told["due_ms"] == told["sent_ms"] <= seen.timestamp_ms
    assert refused(bed, "deliver", *named, *WAIT)[0] == f"too-late {origin}"


def test_a_schedule_that_replaces_prints_the_replaced_origin(bed: Bed, requests: str, target: str) -> None:
    start(bed)
    given = ["--requests", requests, "--topic", target, "--id", "order-9"]
    (first,) = command(bed, "send", *given, "--delay", "1h", "--value", "old")
    second = command(bed, "send", *given, "--delay", "100ms", "--value", "new", *WAIT)
    assert second[1] == f"replaced {first}"
    assert [(seen.value, seen.origin.decode()) for seen in arrived(bed, target, 1)] == [(b"new", second[0])]
    bed.wait_for_ends(2)
    assert len(gather(bed.bootstrap, bed.requests, bed.targets).delivered) == 1


def test_a_refused_control_is_rejected_and_changes_nothing(bed: Bed, requests: str, target: str) -> None:
    """Its horizon is shorter than that of the command, which knows no better."""
    start(bed, levels_ms=[1_000], horizon_ms=3_600_000)
    (origin,) = command(bed, "send", "--requests", requests, "--topic", target, "--delay", "1h")
    said, sentence = refused(bed, "reschedule", "--origin", origin, "--delay", "2h", *WAIT)
    assert (said, "its dead letter has the reason" in sentence) == ("rejected", True)
    (letter,) = map(json.loads, command(bed, "dead-letters", "list", "--requests", requests, "--output", "json"))
    assert letter["reason"] == "beyond-horizon"
    assert command(bed, "cancel", "--origin", origin, *WAIT)[1] == f"cancelled {origin}"


def test_with_verdicts_all_a_command_waits_for_a_message(bed: Bed, requests: str, target: str) -> None:
    start(bed, verdicts="all")
    given = ["send", "--requests", requests, "--topic", target, "--delay", "500ms", *WAIT]
    said = command(bed, *given)
    assert said[1] == "delivered"
    assert [seen.origin.decode() for seen in arrived(bed, target, 1)] == [said[0]]


def test_a_cancel_written_during_an_outage_gets_its_verdict_later(bed: Bed, requests: str, target: str) -> None:
    (origin,) = command(bed, "send", "--requests", requests, "--topic", target, "--delay", "1h", "--key", "k")
    cancel = ["cancel", "--origin", origin]
    done = run_postdate(*cancel, "--wait-verdict", "--timeout", "1s", "-b", bed.bootstrap)
    assert (done.returncode, done.stdout.splitlines()[0].rpartition("/")[0]) == (1, origin.rpartition("/")[0])
    assert "no verdict within 1s" in done.stderr
    assert "postdate run" in done.stderr
    sidecar = bed.new_sidecar()
    sidecar.start()
    sidecar.wait_for_shards(4)
    bed.wait_for_ends(2)
    assert bed.judge([]).delivered == []
    assert refused(bed, *cancel, *WAIT)[0] == "not-found"


def test_silence_where_verdicts_are_switched_off(bed: Bed, requests: str, target: str) -> None:
    start(bed, verdicts="none")
    done = run_postdate(
        "cancel", "--requests", requests, "--id", "i", "-b", bed.bootstrap, *WAIT[:1], "--timeout", "2s"
    )
    assert (done.returncode, "`verdicts` is not none" in done.stderr) == (Exit.FAILED, True)
