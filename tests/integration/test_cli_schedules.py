"""Goal: an operator creates a schedule, sees what it did and will do, replaces and ends it, all from the command line.

Method: the commands in this process, a real broker and a real sidecar. What they print is compared with what arrives on
the target.
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
    """The lines that a command prints; it must succeed."""
    done = CliRunner().invoke(program, ["schedule", *arguments], env=SETTING)
    assert done.exit_code == 0, done.stderr or repr(done.exception)
    return done.stdout.splitlines()


def test_a_schedule_is_created_shown_replaced_and_ended(env: SidecarDeployment) -> None:
    requests, target = env.new_requests(4), env.new_target(message_timestamp_type="LogAppendTime")
    sidecar = env.new_sidecar()
    sidecar.format_version = 3
    sidecar.http = {"port": free_port()}
    sidecar.start()
    sidecar.wait_for_shards(4)
    here = ("--url", f"http://127.0.0.1:{sidecar.http['port']}")
    named = ("--requests", requests, "-b", env.bootstrap, "--id", "tick")
    message = (*named, "--topic", target, "--key", "k", "--value", "v")

    def show() -> dict[str, Any]:
        (line,) = schedule("show", "--id", "tick", *here, "--output", "json")
        shown: dict[str, Any] = json.loads(line)
        return shown

    (first,) = schedule("create", *message, "--every", "1s")
    # The id is known to the sidecar once it has read the request.
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
    reader = env.reader(target)
    seen = [each for each in reader.to_end() if each.origin == first.encode()]
    reader.close()
    assert {(each.key, each.value) for each in seen} == {(b"k", b"v")}
    assert [int(each.last("postdate-occurrence")) for each in seen] == list(range(1, len(seen) + 1))
    assert {event["occurrence"] for event in occurred} <= set(range(1, len(seen) + 1))
