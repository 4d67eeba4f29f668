"""Goal: `cancel`, `reschedule`, `deliver` and `send --wait-verdict` find their message in any partition, and print the
true outcome.

Method: the commands act on four partitions of a real broker, which a real sidecar serves. Most commands run in this
process. At the end the oracle checks on the topics which messages arrived.
"""

from __future__ import annotations

import json

import pytest

from postdate.sidecar.errors import Exit
from postdate.wire.headers import DUE
from support.deployments.command import call_postdate, command_output, run_postdate
from support.deployments.sidecar_deployment import SidecarDeployment
from support.deployments.sidecars import Sidecar
from support.oracles.exactly_once import Seen, gather

WAIT = ("--wait-verdict", "--timeout", "60s")


def start(deployment: SidecarDeployment, verdicts: str = "control", **topic: object) -> Sidecar:
    sidecar = deployment.new_sidecar()
    sidecar.topic = {"verdicts": verdicts, **topic}
    sidecar.start()
    sidecar.wait_for_shards(4)
    return sidecar


@pytest.fixture
def requests(deployment: SidecarDeployment) -> str:
    return deployment.new_requests(4)


@pytest.fixture
def target(deployment: SidecarDeployment) -> str:
    return deployment.new_target()


def command(deployment: SidecarDeployment, *arguments: str) -> list[str]:
    """Runs a command, which must succeed, and returns the lines that it prints."""
    return command_output(*arguments, "-b", deployment.bootstrap).splitlines()


def refused(deployment: SidecarDeployment, *arguments: str) -> tuple[str, str]:
    """Runs a command, which must fail, and returns the verdict that it prints and its error output."""
    done = call_postdate(*arguments, "-b", deployment.bootstrap)
    assert done.exit_code == Exit.FAILED, done.stderr
    return done.stdout.splitlines()[1], done.stderr


def arrived(deployment: SidecarDeployment, target: str, count: int) -> list[Seen]:
    """Waits for `count` messages on the target, and returns all messages that were read."""
    reader = deployment.reader(target)
    try:
        reader.until(lambda: len(reader.records) >= count, f"{count} messages on {target}")
        return reader.records
    finally:
        reader.close()


@pytest.mark.parametrize("by", ["id", "origin"])
def test_a_message_is_moved_and_then_cancelled(
    deployment: SidecarDeployment, requests: str, target: str, by: str
) -> None:
    start(deployment)
    options = ["--requests", requests, "--topic", target, "--key", "k", "--delay", "1h"]
    (origin,) = command(deployment, "send", *options, "--id", "order-9")
    named = ["--requests", requests, "--id", "order-9"] if by == "id" else ["--origin", origin]
    moved = command(deployment, "reschedule", *named, "--delay", "2h", *WAIT)
    assert moved[1] == f"rescheduled {origin}"
    cancelled = command(deployment, "cancel", *named, *WAIT)
    assert cancelled[1] == f"cancelled {origin}"
    assert {line.rpartition("/")[0] for line in (origin, moved[0], cancelled[0])} == {origin.rpartition("/")[0]}
    again, sentence = refused(deployment, "cancel", *named, *WAIT)
    assert (again, "no such message was pending" in sentence) == ("not-found", True)
    assert refused(deployment, "reschedule", *named, "--delay", "1s", *WAIT)[0] == "not-found"
    deployment.wait_for_ends(5)
    assert deployment.judge([]).delivered == []


def test_a_delivered_message_can_no_longer_be_changed(
    deployment: SidecarDeployment, requests: str, target: str
) -> None:
    start(deployment)
    (origin,) = command(
        deployment, "send", "--requests", requests, "--topic", target, "--delay", "1ms", "--id", "order-9"
    )
    (seen,) = arrived(deployment, target, 1)
    assert seen.origin.decode() == origin
    for named in (["--requests", requests, "--id", "order-9"], ["--origin", origin]):
        for control in (["cancel"], ["reschedule", "--delay", "1h"]):
            verdict, sentence = refused(deployment, *control, *named, *WAIT)
            assert (verdict, "had already been delivered" in sentence) == (f"too-late {origin}", True)


def test_a_message_moved_forward_arrives_by_its_new_time(
    deployment: SidecarDeployment, requests: str, target: str
) -> None:
    start(deployment)
    options = ["--requests", requests, "--topic", target, "--value", "v", "--delay", "1h"]
    (origin,) = command(deployment, "send", *options)
    moved = ["reschedule", "--origin", origin, "--delay", "300ms", "--output", "json", *WAIT]
    (answer,) = map(json.loads, command(deployment, *moved))
    assert (answer["verdict"], answer["of"]) == ("rescheduled", origin)
    (seen,) = arrived(deployment, target, 1)
    assert (seen.origin.decode(), seen.value) == (origin, b"v")
    assert int(seen.last(DUE)) == answer["due_ms"] <= seen.timestamp_ms


@pytest.mark.parametrize("by", ["id", "origin"])
def test_a_message_is_delivered_now_and_never_early(
    deployment: SidecarDeployment, requests: str, target: str, by: str
) -> None:
    start(deployment)
    options = ["--requests", requests, "--topic", target, "--value", "v", "--delay", "1h", "--id", "order-9"]
    (origin,) = command(deployment, "send", *options)
    named = ["--requests", requests, "--id", "order-9"] if by == "id" else ["--origin", origin]
    (answer,) = map(json.loads, command(deployment, "deliver", *named, "--output", "json", *WAIT))
    assert (answer["verdict"], answer["of"]) == ("rescheduled", origin)
    (seen,) = arrived(deployment, target, 1)
    assert (seen.origin.decode(), seen.value) == (origin, b"v")
    assert int(seen.last(DUE)) == answer["due_ms"] == answer["sent_ms"] <= seen.timestamp_ms
    assert refused(deployment, "deliver", *named, *WAIT)[0] == f"too-late {origin}"


def test_a_schedule_that_replaces_prints_the_replaced_origin(
    deployment: SidecarDeployment, requests: str, target: str
) -> None:
    start(deployment)
    options = ["--requests", requests, "--topic", target, "--id", "order-9"]
    (first,) = command(deployment, "send", *options, "--delay", "1h", "--value", "old")
    second = command(deployment, "send", *options, "--delay", "100ms", "--value", "new", *WAIT)
    assert second[1] == f"replaced {first}"
    assert [(seen.value, seen.origin.decode()) for seen in arrived(deployment, target, 1)] == [(b"new", second[0])]
    deployment.wait_for_ends(2)
    assert len(gather(deployment.bootstrap, deployment.requests, deployment.targets).delivered) == 1


def test_a_refused_control_is_rejected_and_changes_nothing(
    deployment: SidecarDeployment, requests: str, target: str
) -> None:
    """The horizon of the sidecar is shorter than the default horizon, which the command checks."""
    start(deployment, levels_ms=[1_000], horizon_ms=3_600_000)
    (origin,) = command(deployment, "send", "--requests", requests, "--topic", target, "--delay", "1h")
    verdict, sentence = refused(deployment, "reschedule", "--origin", origin, "--delay", "2h", *WAIT)
    assert (verdict, "its dead letter has the reason" in sentence) == ("rejected", True)
    (dead_letter,) = map(
        json.loads, command(deployment, "dead-letters", "list", "--requests", requests, "--output", "json")
    )
    assert dead_letter["reason"] == "beyond-horizon"
    assert command(deployment, "cancel", "--origin", origin, *WAIT)[1] == f"cancelled {origin}"


def test_with_verdicts_all_a_command_waits_for_a_message(
    deployment: SidecarDeployment, requests: str, target: str
) -> None:
    start(deployment, verdicts="all")
    options = ["send", "--requests", requests, "--topic", target, "--delay", "500ms", *WAIT]
    lines = command(deployment, *options)
    assert lines[1] == "delivered"
    assert [seen.origin.decode() for seen in arrived(deployment, target, 1)] == [lines[0]]


def test_a_cancel_written_during_an_outage_gets_its_verdict_later(
    deployment: SidecarDeployment, requests: str, target: str
) -> None:
    (origin,) = command(deployment, "send", "--requests", requests, "--topic", target, "--delay", "1h", "--key", "k")
    cancel = ["cancel", "--origin", origin]
    done = run_postdate(*cancel, "--wait-verdict", "--timeout", "1s", "-b", deployment.bootstrap)
    assert (done.returncode, done.stdout.splitlines()[0].rpartition("/")[0]) == (1, origin.rpartition("/")[0])
    assert "no verdict within 1s" in done.stderr
    assert "postdate run" in done.stderr
    sidecar = deployment.new_sidecar()
    sidecar.start()
    sidecar.wait_for_shards(4)
    deployment.wait_for_ends(2)
    assert deployment.judge([]).delivered == []
    assert refused(deployment, *cancel, *WAIT)[0] == "not-found"


def test_a_command_that_waits_for_a_verdict_fails_if_verdicts_are_off(
    deployment: SidecarDeployment, requests: str, target: str
) -> None:
    start(deployment, verdicts="none")
    done = run_postdate(
        "cancel", "--requests", requests, "--id", "i", "-b", deployment.bootstrap, *WAIT[:1], "--timeout", "2s"
    )
    assert (done.returncode, "`verdicts` is not none" in done.stderr) == (Exit.FAILED, True)
