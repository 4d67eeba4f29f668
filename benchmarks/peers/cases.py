"""The measurements: accept and drain, lateness under a steady load, and SIGKILL in a drain.

Each uses a new target. A case returns its figures and the load average of the machine before and after it.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.peers.arrivals import (
    POLL_INTERVAL_S,
    Receiver,
    Rows,
    Value,
    count_figures,
    drain_figures,
    lateness_figures,
)
from benchmarks.peers.errors import PeerFailed
from benchmarks.peers.system import Clients, System, run

#: Seconds: the start of a steady load, which is not counted, since JVMs compile their code meanwhile.
WARM_UP_S = 5
#: Seconds: the least time from the last acknowledgement to the due time, so that no message is still being accepted.
SETTLED_S = 2.0
#: Seconds: if no message arrives for this time, missing messages are lost. RocketMQ takes some 8 s after a SIGKILL.
SILENT_S = 60.0
#: Seconds: the wait for repeats after all messages have arrived.
QUIET_S = 10.0
#: The share of the messages that arrive before the SIGKILL: small, since a system may be far ahead of its receiver.
KILL_SHARE = 0.05


@dataclass(frozen=True)
class Case:
    """The figures of one measurement of one system."""

    system: str
    case: str
    figures: dict[str, Value]
    load_average: tuple[float, float]
    """The load averages of the minute before the case began, and of the minute before it ended."""


class Measurement:
    """Runs cases on one system; logs of the client programs go to `directory`."""

    def __init__(self, system: System, directory: Path) -> None:
        self._system, self._directory = system, directory
        self._receivers = 0

    def drain(self, count: int, lead_s: float) -> Case:
        """Sends `count` messages that are due at one instant; measures the rates of accepting and delivering them."""
        before = os.getloadavg()[0]
        with self._system.target() as clients, self._receiver(clients) as receiver:
            due_ms, figures = self._fill(clients, count, lead_s)
            receiver.wait_until(due_ms)
            receiver.wait_for_all(count, SILENT_S)
            rows = receiver.rows()
        figures |= drain_figures(rows, due_ms, count) | count_figures(rows, count)
        return self._case("accept and drain", figures, before)

    def kill(self, count: int, lead_s: float) -> Case:
        """As `drain`, with a SIGKILL to the delaying process during the drain, which is started again immediately."""
        before = os.getloadavg()[0]
        with self._system.target() as clients, self._receiver(clients) as receiver:
            due_ms, _ = self._fill(clients, count, lead_s)
            receiver.wait_until(due_ms)
            receiver.wait_for(int(count * KILL_SHARE), SILENT_S)
            self._system.kill()
            killed_ms = time.time_ns() / 1_000_000
            self._system.restart()
            receiver.touch()
            receiver.wait_for_all(count, SILENT_S, QUIET_S)
            rows = receiver.rows()
        return self._case("SIGKILL in the drain", kill_figures(rows, count, killed_ms), before)

    def lateness(self, rate: int, seconds: int) -> Case:
        """Sends `rate` messages a second with delays from one to five seconds, and measures how late they arrive."""
        before = os.getloadavg()[0]
        count, first = rate * (seconds + WARM_UP_S), rate * WARM_UP_S
        with self._system.target() as clients, self._receiver(clients) as receiver:
            sent = self._send(clients, count, rate, 0, 2 * (seconds + WARM_UP_S) + SILENT_S)
            receiver.wait_for_all(count, SILENT_S)
            rows = receiver.rows()
        figures = lateness_figures(rows, first) | count_figures(rows, count)
        figures["sent_per_s"] = round(count / sent["seconds"])
        return self._case(f"{rate:,}/s", figures, before)

    def _fill(self, clients: Clients, count: int, lead_s: float) -> tuple[int, dict[str, Value]]:
        """Sends `count` messages that are due in `lead_s`. Returns the due time and the rate of accepting."""
        due_ms = time.time_ns() // 1_000_000 + int(lead_s * 1_000)
        began = time.monotonic()
        sent = self._send(clients, count, 0, due_ms, lead_s + SILENT_S)
        figures: dict[str, Value] = {"accepted_per_s": round(count / sent["seconds"])}
        if "refused" in sent:
            figures["refused_and_sent_again"] = int(sent["refused"])
        while (pending := self._system.pending()) is not None:
            if pending >= count:
                figures["taken_in_s"] = round(time.monotonic() - began, 1)
                break
            self._check_lead(due_ms)
            time.sleep(POLL_INTERVAL_S)
        self._check_lead(due_ms)
        return due_ms, figures

    def _check_lead(self, due_ms: int) -> None:
        if time.time_ns() / 1_000_000 > due_ms - SETTLED_S * 1_000:
            raise PeerFailed(f"{self._system.name} did not accept all messages in time; choose a larger --lead")

    def _send(self, clients: Clients, count: int, rate: int, due_ms: int, timeout_s: float) -> dict[str, float]:
        """Runs the sender to its end. Returns `seconds`, the time from its first message to the last acknowledgement. A
        busy system may refuse messages, which are sent again; `refused` is the number of refusals."""
        printed = run(
            [*clients.sender, str(count), str(rate), str(due_ms)],
            f"the sender for {self._system.name}",
            directory=self._directory,
            environment=clients.environment,
            timeout_s=timeout_s,
        )
        return dict(json.loads(printed.splitlines()[-1]))

    def _receiver(self, clients: Clients) -> Receiver:
        self._receivers += 1
        log = self._directory / f"receiver-{self._receivers}.log"
        return Receiver(clients.receiver, log, clients.environment)

    def _case(self, case: str, figures: dict[str, Value], before: float) -> Case:
        return Case(self._system.name, case, figures, (round(before, 1), round(os.getloadavg()[0], 1)))


def kill_figures(rows: Rows, count: int, killed_ms: float) -> dict[str, Value]:
    """Returns the effects of a SIGKILL: losses, repeats, the time until the next message, and until all had arrived."""
    after = rows[rows[:, 2] / 1_000 > killed_ms]
    figures = count_figures(rows, count)
    figures["arrived_before_the_kill"] = len(rows) - len(after)
    if len(after):
        figures["next_after_s"] = round((float(after[:, 2].min()) / 1_000 - killed_ms) / 1_000, 1)
        figures["last_after_s"] = round((float(after[:, 2].max()) / 1_000 - killed_ms) / 1_000, 1)
    return figures
