"""Goal: a process that slept while its shards moved to another delivers nothing when it wakes, and gives the reason.

Method: two processes, one stopped with SIGSTOP in the midst of deliveries until the dispatch log shows that the other
has taken over all shards, then continued. What the woken one had under way must be refused by Kafka.
"""

from __future__ import annotations

import re
import time

from postdate.wire.dispatch_log import DispatchRecord, decode_record
from postdate.wire.headers import AT, TOPIC, Headers
from support.deployments.sidecar_deployment import SidecarDeployment
from support.deployments.sidecars import Sidecar
from support.oracles.exactly_once import Seen, Sent

_SAYS_WHY = r"fenced|lost to another member"
_MESSAGES = 6_000
_SECONDS = 15


def _fill(env: SidecarDeployment, requests: str, target: str) -> list[Sent]:
    """Requests due evenly over the whole test."""
    sender, first_due_ms = env.sender(), int(time.time() * 1000) + 1000
    asked = []
    for index in range(_MESSAGES):
        due_ms = first_due_ms + index * _SECONDS * 1000 // _MESSAGES
        given: Headers = [(TOPIC, target.encode()), (AT, b"%d" % due_ms)]
        asked.append(sender.send(requests, Sent(target, b"%d" % index, b"v%d" % index, given, due_ms)))
    sender.flush()
    return asked


def _owners(log: list[Seen]) -> dict[int, str]:
    """Partition -> the instance that wrote its last record."""
    return {seen.partition: decode_record(seen.value).instance for seen in log}


def test_a_process_that_slept_through_a_takeover_delivers_nothing_more(env: SidecarDeployment) -> None:
    requests, target = env.new_requests(2), env.new_target(2)
    sleeper, other = env.new_sidecar("sleeper"), env.new_sidecar("other")
    sleeper.start()
    other.start()
    for process in (sleeper, other):
        process.wait_for_shards(1)
    asked = _fill(env, requests, target)
    log = env.reader(f"{requests}.dispatch-log")
    log.until(lambda: _delivers(sleeper, log.records), "the sleeper delivers")
    sleeper.pause()
    log.until(lambda: set(_owners(log.records).values()) == {"other-1"}, "the other owns all shards")
    sleeper.resume()
    sleeper.wait_for_log(_SAYS_WHY)
    env.wait_for_ends(len(asked))
    exits = [sleeper.stop(), other.stop()]
    outcome = env.judge(asked)
    assert exits == [0, 0]
    said = re.findall(rf".*(?:{_SAYS_WHY}).*", sleeper.log_text())
    print(f"the woken process said: {said[0]}")
    assert set(_stale_records(outcome.log).values()) == {0}
    log.close()


def _delivers(process: Sidecar, log: list[Seen]) -> bool:
    records = [decode_record(seen.value) for seen in log]
    return any(record.fates and record.instance.startswith(process.name) for record in records)


def _stale_records(log: list[tuple[Seen, DispatchRecord]]) -> dict[int, int]:
    """Partition -> records of a takeover that a later one had ended already: what no owner may write."""
    stale: dict[int, int] = {}
    newest: dict[int, int] = {}
    for seen, record in sorted(log, key=lambda pair: pair[0].offset):
        stale[seen.partition] = stale.get(seen.partition, 0) + (record.takeover < newest.get(seen.partition, 0))
        newest[seen.partition] = max(newest.get(seen.partition, 0), record.takeover)
    return stale
