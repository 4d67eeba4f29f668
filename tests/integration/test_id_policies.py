"""Goal: policies for ids hold on a real broker. The first of several requests survives, or the last one, and a series
is not postponed beyond its limit. This also holds if the process is killed and its disk is lost.

Method: two sidecars run one after the other on a real broker. The test reads the dispatch log and the verdicts to see
which requests survived.
"""

from __future__ import annotations

import json
import shutil
import time
from itertools import pairwise

from postdate.wire.dispatch_log import SeriesFate, SurvivorFate
from postdate.wire.headers import AT, ID, IF_ENDED, IF_PENDING, LATEST, TOPIC, Headers
from postdate.wire.verdicts import Verdict
from support.deployments.command import call_postdate
from support.deployments.sidecar_deployment import SidecarDeployment
from support.oracles.exactly_once import Sent

_LATEST_MS = 20_000
#: Milliseconds: the time for a poll and a transaction, on a machine that runs other tests as well.
_LATE_MS_MAX = 10_000


def _send(deployment: SidecarDeployment, value: bytes, due_ms: int, caller_id: bytes, *more: tuple[str, bytes]) -> Sent:
    """Sends one request with this id, which is also its key, so that all requests of the id share a partition."""
    sender = deployment.sender()
    headers: Headers = [(TOPIC, deployment.targets[0].encode()), (AT, b"%d" % due_ms), (ID, caller_id), *more]
    sent = sender.send(deployment.requests[0], Sent(deployment.targets[0], caller_id, value, headers, due_ms))
    sender.flush()
    return sent


def _offset(sent: Sent) -> int:
    return int(sent.origin.rpartition(b"/")[2])


def test_policies_hold_through_a_kill_and_a_lost_disk(deployment: SidecarDeployment) -> None:
    deployment.new_requests(1)
    deployment.new_target()
    sidecar = deployment.new_sidecar(static=True)
    sidecar.format_version = 2
    sidecar.start()
    sidecar.wait_for_shards(1)
    due_ms = int(time.time() * 1000) + 90_000  # after the test, unless a limit or a control makes it earlier
    keep, latest = (IF_PENDING, b"keep"), (LATEST, b"%d" % _LATEST_MS)
    kept = [_send(deployment, b"throttled %d" % n, due_ms, b"t", keep) for n in range(3)]
    series = [_send(deployment, b"debounced %d" % n, due_ms, b"d", latest) for n in range(3)]
    deployment.wait_for_ends(4)
    sidecar.kill()
    shutil.rmtree(sidecar.data_dir)
    series += [_send(deployment, b"debounced %d" % n, due_ms, b"d", latest) for n in range(3, 5)]
    kept.append(_send(deployment, b"throttled 3", due_ms, b"t", keep))
    sidecar.start()
    deployment.wait_for_ends(8)
    start_ms = min(sent.appended_ms for sent in series)
    series[-1].due_ms = start_ms + _LATEST_MS
    outcome = deployment.judge([series[-1]], silent=[*kept[1:], *series[:-1]])
    fates = {fate.offset: fate for _, record in outcome.log for fate in record.fates}
    assert [fates[_offset(sent)] for sent in kept[1:]] == [
        SurvivorFate(_offset(sent), due_ms, "kept", _offset(kept[0])) for sent in kept[1:]
    ]
    assert [fates[_offset(sent)] for sent in series[:-1]] == [
        SeriesFate(_offset(earlier), min(due_ms, start_ms + _LATEST_MS), "replaced", _offset(later), start_ms)
        for earlier, later in pairwise(series)
    ]


def test_repetitions_are_dropped_through_a_kill_and_a_lost_disk(deployment: SidecarDeployment) -> None:
    deployment.new_requests(1)
    deployment.new_target()
    sidecar = deployment.new_sidecar(static=True)
    sidecar.format_version = 2
    sidecar.start()
    sidecar.wait_for_shards(1)
    drop, due_ms = (IF_ENDED, b"drop"), int(time.time() * 1000)
    first = _send(deployment, b"first", due_ms, b"d", drop)
    deployment.wait_for_ends(1)
    repeated = [_send(deployment, b"again", due_ms, b"d", drop)]
    deployment.wait_for_ends(2)
    sidecar.kill()
    shutil.rmtree(sidecar.data_dir)
    repeated.append(_send(deployment, b"and again", due_ms, b"d", drop))
    other = _send(deployment, b"other", due_ms, b"d")
    sidecar.start()
    deployment.wait_for_ends(4)
    outcome = deployment.judge([first, other], silent=repeated)
    fates = {fate.offset: fate for _, record in outcome.log for fate in record.fates}
    assert [fates[_offset(sent)] for sent in repeated] == [
        SurvivorFate(_offset(sent), due_ms, "dropped", _offset(first)) for sent in repeated
    ]


def test_the_command_sends_policies_and_refuses_bad_ones(deployment: SidecarDeployment) -> None:
    deployment.new_requests(1)
    deployment.new_target()
    sidecar = deployment.new_sidecar()
    sidecar.format_version = 2
    sidecar.start()
    sidecar.wait_for_shards(1)
    config_file = deployment.directory / "client.toml"
    config_file.write_text("format_version = 2\n")
    config = ("-b", deployment.bootstrap, "--requests", deployment.requests[0], "--config", str(config_file))
    command = ["send", "--topic", deployment.targets[0], "--value", "v", "--delay", "1h", "--id", "i"]
    for more, word in (
        (("--if-pending", "drop"), "bad-if-pending"),
        (("--if-ended", "keep"), "bad-if-ended"),
        (("--latest", "0s"), "bad-latest"),
        (("--latest", "1s", "--if-pending", "keep"), "bad-latest"),
    ):
        refused = call_postdate(*command, *more, *config)
        assert (refused.exit_code, word in refused.stderr) == (2, True), refused.stderr
    first = call_postdate(*command, *config, "--output", "json")
    assert first.exit_code == 0, first.stderr
    kept = call_postdate(*command, "--if-pending", "keep", "--wait-verdict", *config, "--output", "json")
    answer = json.loads(kept.stdout)
    assert (answer["verdict"], answer["by"]) == (Verdict.KEPT, json.loads(first.stdout)["origin"]), kept.stderr
    done = call_postdate(*command, "--latest", "1s", "--wait-delivery", *config, "--output", "json")
    assert done.exit_code == 0, done.stderr
    ended = json.loads(done.stdout.splitlines()[-1])
    assert (ended["fate"], 0 <= ended["late_ms"] < _LATE_MS_MAX) == ("delivered", True)
    once = [
        "send",
        "--topic",
        deployment.targets[0],
        "--value",
        "v",
        "--delay",
        "0s",
        "--id",
        "once",
        "--if-ended",
        "drop",
    ]
    first = call_postdate(*once, "--wait-delivery", *config, "--output", "json")
    assert first.exit_code == 0, first.stderr
    again = call_postdate(*once, "--wait-verdict", *config, "--output", "json")
    answer = json.loads(again.stdout)
    assert (answer["verdict"], again.exit_code) == (Verdict.DROPPED, 0), again.stderr
    assert answer["by"] == json.loads(first.stdout.splitlines()[0])["origin"]
