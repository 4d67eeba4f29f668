"""Goal: every verdict on a cancel, replacement or reschedule is true, whenever the control comes, even while processes
are killed.

Method: the test schedules messages with ids, and changes them at random times, from long before to just after they are
due. Two processes are killed with SIGKILL and started again meanwhile. Then the test compares each verdict with what
Kafka holds: a cancelled or replaced message never arrives, the message of a `too-late` verdict has arrived, and every
request has one end. The test prints its seed, and POSTDATE_STORM_SEED repeats it. POSTDATE_STORM_IDS,
POSTDATE_STORM_KILLS and POSTDATE_STORM_SECONDS make the run larger. With POSTDATE_STORM_AUDIT=1, Spark audits it, too.
"""

from __future__ import annotations

import heapq
import os
import random
import threading
import time
from collections import Counter, defaultdict
from dataclasses import dataclass

import pytest

from postdate.wire.dispatch_log import FINAL
from postdate.wire.headers import ACTION, AT, ID, KEY, TOPIC, Headers
from postdate.wire.verdicts import Verdict, VerdictRecord, decode_verdict
from support.deployments.sidecar_deployment import SidecarDeployment
from support.deployments.sidecars import Sidecar, postdate
from support.oracles.exactly_once import Outcome, Sent, gather
from support.waiting.timeouts import WAIT_TIMEOUT_S

_IDS = int(os.environ.get("POSTDATE_STORM_IDS", "600"))
_KILLS = int(os.environ.get("POSTDATE_STORM_KILLS", "3"))
_SECONDS = float(os.environ.get("POSTDATE_STORM_SECONDS", "8"))
_SETTLE_S = WAIT_TIMEOUT_S + 5.0 * _KILLS


@dataclass(order=True)
class _Step:
    """One request: the time at which it is sent, the number in its id, its action and its due time."""

    at_ms: int
    number: int
    action: str
    due_ms: int


def _steps(first_ms: int, chance: random.Random) -> list[_Step]:
    """Returns the requests in order of time: for each id a schedule and up to three changes.

    Most changes come within a second of the due time.
    """
    steps: list[_Step] = []
    for number in range(_IDS):
        due_ms = first_ms + 1_000 + int(chance.random() * _SECONDS * 1000)
        heapq.heappush(steps, _Step(max(first_ms, due_ms - chance.choice((300, 1_000, 5_000))), number, "", due_ms))
        for _ in range(chance.choice((0, 1, 1, 2, 3))):
            at_ms = due_ms - int(chance.triangular(-200, 4_000, 50))
            later_ms = due_ms + int(chance.random() * 2_000)
            heapq.heappush(steps, _Step(max(first_ms, at_ms), number, chance.choice(_ACTIONS), later_ms))
    return [heapq.heappop(steps) for _ in range(len(steps))]


_ACTIONS = ("cancel", "cancel", "reschedule", "")


def _send(
    deployment: SidecarDeployment, requests: str, target: str, chance: random.Random
) -> tuple[list[Sent], list[Sent]]:
    """Sends each step at its time, and returns the schedules and the controls."""
    sender, schedules, controls = deployment.sender(), list[Sent](), list[Sent]()
    wait = threading.Event()
    for step in _steps(int(time.time() * 1000), chance):
        wait.wait(max(step.at_ms / 1000 - time.time(), 0.0))
        caller_id = b"id-%d" % step.number
        headers: Headers = [(ID, caller_id)]
        if step.action:
            headers.append((ACTION, step.action.encode()))
        else:
            headers += [(TOPIC, target.encode()), (KEY, b"key-%d" % (step.number % 7))]
        if step.action != "cancel":
            headers.append((AT, b"%d" % step.due_ms))
        sent = Sent(target, caller_id, b"value %d" % step.number, headers, step.due_ms, b"key-%d" % (step.number % 7))
        (controls if step.action else schedules).append(sender.send(requests, sent))
    sender.flush()
    return schedules, controls


def _cancel_ended(deployment: SidecarDeployment, requests: str, ids: set[bytes]) -> list[Sent]:
    sender = deployment.sender()
    cancels = [sender.send(requests, Sent("", id_, None, [(ID, id_), (ACTION, b"cancel")])) for id_ in sorted(ids)]
    sender.flush()
    return cancels


def _kill(processes: list[Sidecar], chance: random.Random) -> None:
    first, step = time.monotonic(), (_SECONDS + 1) / _KILLS
    for number in range(_KILLS):
        threading.Event().wait(max(first + (number + chance.random()) * step - time.monotonic(), 0.0))
        victim = chance.choice(processes)
        victim.kill()
        victim.start()


def _answers(deployment: SidecarDeployment, requests: str) -> list[VerdictRecord]:
    reader = deployment.reader(f"{requests}.verdicts")
    try:
        return [decode_verdict(seen.value) for seen in reader.to_end()]
    finally:
        reader.close()


def _untrue(schedules: list[Sent], controls: list[Sent], answers: list[VerdictRecord], outcome: Outcome) -> list[str]:
    """Describes the controls without exactly one verdict, and the verdicts that contradict earlier records.

    A process that took a shard over without its disk does not know the requests that ended before. So `not-found` only
    states that the last request of the id ended before the control.
    """
    wrong = []
    of_id: dict[bytes, list[Sent]] = defaultdict(list)
    for sent in schedules:
        of_id[sent.id].append(sent)
    by_origin = {answer.origin: answer for answer in answers}
    counts = Counter((answer.origin, answer.verdict) for answer in answers)
    wrong += [f"{key} answered {count} times" for key, count in counts.items() if count > 1]
    ended = {answer.of for answer in answers if answer.verdict in (Verdict.CANCELLED, Verdict.REPLACED)}
    ends = {
        (seen.partition, fate.offset): seen.offset
        for seen, record in outcome.log
        for fate in record.fates
        if fate.name in FINAL
    }
    known = {sent.origin.decode() for sent in [*schedules, *controls]}
    wrong += [f"{answer} answers no request" for answer in answers if answer.origin not in known]
    for control in controls:
        answer = by_origin.get(control.origin.decode())
        if answer is None:
            wrong.append(f"{control.origin!r} has no answer")
            continue
        before = [sent for sent in of_id[control.id] if _offset(sent) < _offset(control)]
        last = before[-1].origin.decode() if before else None
        if answer.verdict == Verdict.NOT_FOUND:
            part = int(control.origin.split(b"/")[1])
            if before and ends[part, _offset(before[-1])] > ends[part, _offset(control)]:
                wrong.append(f"{answer}, but {last} was pending")
        elif answer.of != last:
            wrong.append(f"{answer}, but the last request of the id is {last}")
        elif answer.verdict == Verdict.TOO_LATE and last in ended:
            wrong.append(f"{answer}, but a control had ended it")
    return wrong


def _histories(outcome: Outcome, wrong: list[str], requests: list[Sent]) -> list[str]:
    """Describes each request of the ids in `wrong`, with its fates in the dispatch log."""
    fates: dict[tuple[int, int], list[str]] = defaultdict(list)
    for seen, record in outcome.log:
        for fate in record.fates:
            fates[seen.partition, fate.offset].append(f"{fate} in {seen.offset} by {record.instance}")
    lines = []
    for sent in requests:
        if any(f"{sent.id!r}"[2:-1] + "'" in text for text in wrong):
            part = int(sent.origin.split(b"/")[1])
            lines.append(f"{sent.id!r} {sent.origin!r} {sent.headers[1:]} {fates[part, _offset(sent)]}")
    return lines


def _offset(sent: Sent) -> int:
    return int(sent.origin.rpartition(b"/")[2])


@pytest.mark.timeout(1_800 + 20 * _KILLS + 3 * _SECONDS)
def test_every_verdict_is_true_while_processes_are_killed(deployment: SidecarDeployment) -> None:
    seed = int(os.environ.get("POSTDATE_STORM_SEED", "0")) or random.SystemRandom().randrange(1, 10**6)
    print(f"seed {seed}: {_IDS} ids over {_SECONDS:.0f} s, {_KILLS} kills")
    requests, target = deployment.new_requests(4), deployment.new_target(4)
    processes = [deployment.new_sidecar(static=True) for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.wait_for_shards(2)
    killer = threading.Thread(target=_kill, args=(processes, random.Random(seed)))
    killer.start()
    schedules, controls = _send(deployment, requests, target, random.Random(seed + 1))
    killer.join()
    deployment.wait_for_ends(len(schedules) + len(controls), _SETTLE_S + _SECONDS)
    controls += _cancel_ended(deployment, requests, {sent.id for sent in schedules[:200]})
    deployment.wait_for_ends(len(schedules) + len(controls), _SETTLE_S)
    exits = [process.stop() for process in processes]
    answers = _answers(deployment, requests)
    print(Counter(answer.verdict.value for answer in answers))
    wrong = _untrue(
        schedules, controls, answers, outcome := gather(deployment.bootstrap, deployment.requests, deployment.targets)
    )
    if wrong:
        print("\n".join(_histories(outcome, wrong, [*schedules, *controls])))
    assert not wrong, f"{len(wrong)} wrong:\n" + "\n".join(wrong[:10])

    ended = {answer.of for answer in answers if answer.verdict in (Verdict.CANCELLED, Verdict.REPLACED)}
    moved = {
        answer.of: answer.origin
        for answer in sorted(answers, key=lambda answer: int(answer.origin.rpartition("/")[2]))
        if answer.verdict == Verdict.RESCHEDULED
    }
    due = {sent.origin.decode(): sent.due_ms for sent in controls}
    for sent in schedules:
        if sent.origin.decode() in moved:
            sent.due_ms = due[moved[sent.origin.decode()]]
    expected = [sent for sent in schedules if sent.origin.decode() not in ended]
    silent = [sent for sent in schedules if sent.origin.decode() in ended]
    outcome = deployment.judge(expected, silent=[*silent, *controls])
    print(f"{len(expected)} delivered, {len(silent)} not; {outcome.takeovers()} takeovers, {len(outcome.log)} commits")
    reached = {answer.verdict for answer in answers}
    assert reached >= {Verdict.CANCELLED, Verdict.REPLACED, Verdict.RESCHEDULED, Verdict.TOO_LATE, Verdict.NOT_FOUND}
    assert outcome.takeovers() > 4, "no shard was ever taken over: the run proves nothing"
    assert exits == [0, 0]
    if os.environ.get("POSTDATE_STORM_AUDIT"):
        print(
            postdate(
                "audit", "-b", deployment.bootstrap, "--requests", requests, "--verdicts", "control", timeout_s=900
            )
        )
