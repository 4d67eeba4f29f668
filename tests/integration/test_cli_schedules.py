"""Goal: on the command line, an operator creates a schedule, sees its past and future occurrences, replaces it and ends
it.

Method: the commands run in this process, with a real broker and a real sidecar. The test compares their output with the
records on the target.
"""

from __future__ import annotations

import json
from typing import Any

from click.testing import CliRunner

from postdate.cli import postdate as program
from support.deployments.ports import free_port
from support.deployments.sidecar_deployment import SidecarDeployment
from support.deployments.sidecars import wait_until

SETTING = {"POSTDATE_FORMAT_VERSION": "3"}


def schedule(*arguments: str) -> list[str]:
    """Runs a command of `postdate schedule`, which must succeed, and returns the lines that it prints."""
    done = CliRunner().invoke(program, ["schedule", *arguments], env=SETTING)
    assert done.exit_code == 0, done.stderr or repr(done.exception)
    return done.stdout.splitlines()


def test_a_schedule_is_created_shown_replaced_and_ended(deployment: SidecarDeployment) -> None:
    requests, target = deployment.new_requests(4), deployment.new_target(message_timestamp_type="LogAppendTime")
    sidecar = deployment.new_sidecar()
    sidecar.format_version = 3
    sidecar.http = {"port": free_port()}
    sidecar.start()
    sidecar.wait_for_shards(4)
    here = ("--url", f"http://127.0.0.1:{sidecar.http['port']}")
    named = ("--requests", requests, "-b", deployment.bootstrap, "--id", "tick")
    message = (*named, "--topic", target, "--key", "k", "--value", "v")

    def show() -> dict[str, Any]:
        (line,) = schedule("show", "--id", "tick", *here, "--output", "json")
        shown: dict[str, Any] = json.loads(line)
        return shown

    (first,) = schedule("create", *message, "--every", "1s")
    # The sidecar knows the id after it has read the request.
    wait_until(lambda: any("tick" in line for line in schedule("list", *here)), "the schedule is listed")
    wait_until(lambda: show()["occurrence"] > 3, "three occurrences were delivered")
    shown = show()
    assert (shown["origin"], shown["target"], shown["schedule"]) == (first, target, {"every": "1s"})
    assert shown["next_ms"] == [shown["due_ms"] + 1_000 * number for number in range(10)]
    occurred = [event for event in shown["events"] if event["fate"] == "occurred"]
    assert [event["occurrence"] for event in occurred][-1] == shown["occurrence"] - 1
    assert all(event["at_ms"] >= event["due_ms"] for event in occurred)
    assert "delivered" in "\n".join(schedule("show", "--id", "tick", *here))

    second, verdict = schedule("create", *message, "--cron", "30 2 1 1 *", "--wait-verdict", "--timeout", "60s")
    assert verdict == f"replaced {first}"
    wait_until(lambda: show()["origin"] == second, "the second schedule is there")
    assert (show()["occurrence"], show()["events"]) == (1, [])

    _, verdict = schedule("cancel", *named, "--wait-verdict", "--timeout", "60s")
    assert verdict == f"cancelled {second}"
    assert schedule("list", *here) == []
    reader = deployment.reader(target)
    occurrences = [seen for seen in reader.to_end() if seen.origin == first.encode()]
    reader.close()
    assert {(seen.key, seen.value) for seen in occurrences} == {(b"k", b"v")}
    assert [int(seen.last("postdate-occurrence")) for seen in occurrences] == list(range(1, len(occurrences) + 1))
    assert {event["occurrence"] for event in occurred} <= set(range(1, len(occurrences) + 1))
