"""Goal: a process that was paused while its shards moved delivers nothing when it continues, and logs the reason.

Method: one of two processes is stopped with SIGSTOP while it delivers. It continues once the dispatch log shows that
the other process has taken over all shards. Kafka must refuse the open transactions of the process that continues.
"""

from __future__ import annotations

import re
import time

from postdate.wire.dispatch_log import DispatchRecord, decode_record
from postdate.wire.headers import AT, TOPIC, Headers
from support.deployments.sidecar_deployment import SidecarDeployment
from support.deployments.sidecars import Sidecar
from support.oracles.exactly_once import Seen, Sent

_REASON = r"fenced|lost to another member"
_MESSAGES = 6_000
_SECONDS = 15


def _fill(deployment: SidecarDeployment, requests: str, target: str) -> list[Sent]:
    """Sends requests whose due times are spread evenly over the test, and returns them."""
    sender, first_due_ms = deployment.sender(), int(time.time() * 1000) + 1000
    requested = []
    for index in range(_MESSAGES):
        due_ms = first_due_ms + index * _SECONDS * 1000 // _MESSAGES
        headers: Headers = [(TOPIC, target.encode()), (AT, b"%d" % due_ms)]
        requested.append(sender.send(requests, Sent(target, b"%d" % index, b"v%d" % index, headers, due_ms)))
    sender.flush()
    return requested


def _owners(log: list[Seen]) -> dict[int, str]:
    """Returns the instance that wrote the last record of each partition."""
    return {seen.partition: decode_record(seen.value).instance for seen in log}


def test_a_process_that_slept_through_a_takeover_delivers_nothing_more(deployment: SidecarDeployment) -> None:
    requests, target = deployment.new_requests(2), deployment.new_target(2)
    sleeper, other = deployment.new_sidecar("sleeper"), deployment.new_sidecar("other")
    sleeper.start()
    other.start()
    for process in (sleeper, other):
        process.wait_for_shards(1)
    requested = _fill(deployment, requests, target)
    log = deployment.reader(f"{requests}.dispatch-log")
    log.until(lambda: _delivers(sleeper, log.records), "the sleeper delivers")
    sleeper.pause()
    log.until(lambda: set(_owners(log.records).values()) == {"other-1"}, "the other owns all shards")
    sleeper.resume()
    sleeper.wait_for_log(_REASON)
    deployment.wait_for_ends(len(requested))
    exits = [sleeper.stop(), other.stop()]
    outcome = deployment.judge(requested)
    assert exits == [0, 0]
    reasons = re.findall(rf".*(?:{_REASON}).*", sleeper.log_text())
    print(f"the process that continued logged: {reasons[0]}")
    assert set(_stale_records(outcome.log).values()) == {0}
    log.close()


def _delivers(process: Sidecar, log: list[Seen]) -> bool:
    records = [decode_record(seen.value) for seen in log]
    return any(record.fates and record.instance.startswith(process.name) for record in records)


def _stale_records(log: list[tuple[Seen, DispatchRecord]]) -> dict[int, int]:
    """Counts by partition the records behind a record of a later takeover. No owner may write such records."""
    stale: dict[int, int] = {}
    newest: dict[int, int] = {}
    for seen, record in sorted(log, key=lambda pair: pair[0].offset):
        stale[seen.partition] = stale.get(seen.partition, 0) + (record.takeover < newest.get(seen.partition, 0))
        newest[seen.partition] = max(newest.get(seen.partition, 0), record.takeover)
    return stale
