"""The steps of the demo: topics, two sidecars, messages, a kill during a dispatch, a new sidecar, the verdicts.

Each process is registered with the ExitStack of the caller before it starts, so that it ends in any case.
Thread rule: main thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console

from postdate.kafka.interface import Kafka, NewTopic, Partition
from postdate.sidecar.cluster.connection import admin_of
from postdate.sidecar.errors import PostdateError
from postdate.sidecar.process.children import Child
from postdate.tools.demo.ledger import Ledger
from postdate.tools.demo.plan import BURST_SHARE, PARTITIONS, REQUESTS, TARGET_PARTITIONS, TARGETS, plan
from postdate.tools.demo.screen import DemoScreen, audit_agrees, print_account, print_audit, read_audit
from postdate.tools.demo.traffic import DemoSender, Readers, now_ms
from postdate.wire.values.texts import counted

#: Seconds: the limit of a start. A sidecar starts and takes over its shards in about 3 s; a slow machine gets longer.
START_TIMEOUT_S = 180.0
#: Seconds: the longest time without an arrival after the last due time; a takeover takes about 8 s.
_CATCH_UP_S = 180.0
#: Milliseconds: how long the readers continue after the last arrival: a takeover could cause repeats.
_LISTEN_ON_MS = 1_500
#: Milliseconds from the due time of the burst to the kill, when the burst's messages are in open transactions.
_KILL_AFTER_MS = 12
#: Seconds: how long one poll for arrivals, and the pause after it, lasts. This limits the precision of the kill.
_POLL_INTERVAL_S = 0.005
#: The session time-out is the shortest that a broker accepts by default, so the group notices the kill after 6 s
#: instead of 15 s. The retry budget is longer than its default of 30 s, since the broker may pause for longer, and
#: messages must not become dead letters.
_SETTINGS = """
[kafka.consumer]
"session.timeout.ms" = "6000"

[dispatch]
retry_budget_ms = 600000
"""


@dataclass
class Show:
    """One run on a running broker. `directory` has the timer indexes and the output of all processes."""

    console: Console
    kafka: Kafka
    bootstrap: str
    directory: Path
    stack: ExitStack
    messages: int
    seconds: float
    ledger: Ledger = field(default_factory=Ledger)
    sidecars: list[Child] = field(default_factory=list)

    def perform(self) -> bool:
        """Runs the demo. Returns True if the ledger found no lost, repeated, early or altered message, and the audit
        found every message delivered and no violation.

        Raises PostdateError or KafkaFault if the run could not continue.
        """
        with DemoScreen(self.console, self.messages) as screen:
            self._create_topics(screen)
            for _ in range(2):
                self._start_sidecar(screen)
            self._wait(screen, self._all_serve, START_TIMEOUT_S, "the two sidecars do not serve all shards")
            screen.event(f"ready: {' and '.join(f'{one.name} has {one.shards()}' for one in self.sidecars)} shards")
            self._send_and_watch(screen)
        account = self.ledger.account()
        print_account(self.console, self.ledger, account)
        agrees = self._audit()
        return account.is_clean and agrees

    def _create_topics(self, screen: DemoScreen) -> None:
        arguments = ["topics", "create", "-b", self.bootstrap, "--requests", REQUESTS]
        arguments += ["--partitions", str(PARTITIONS), "--replication-factor", "1"]
        creation = Child("topics", self.directory, arguments)
        self.stack.callback(creation.stop)
        creation.start()
        with admin_of(self.kafka) as admin:
            admin.create_topics([NewTopic(name, TARGET_PARTITIONS, 1, {}) for name in TARGETS])
        self._wait(screen, lambda: not creation.is_running(), START_TIMEOUT_S, "postdate topics create did not end")
        if creation.exit_code() != 0:
            raise PostdateError(f"postdate topics create failed:\n{creation.log_tail()}")
        screen.event(f"topics created: {REQUESTS} with {PARTITIONS} partitions, and {', '.join(TARGETS)}")

    def _start_sidecar(self, screen: DemoScreen) -> None:
        settings = self.directory / "postdate.toml"
        settings.write_text(_SETTINGS)
        name = f"sidecar-{len(self.sidecars) + 1}"
        arguments = ["run", "-b", self.bootstrap, "--config", str(settings), "--requests", REQUESTS]
        arguments += ["--data", str(self.directory / "data"), "--instance", name, "--http-port", "0"]
        sidecar = Child(name, self.directory, arguments)
        self.stack.callback(sidecar.stop)
        sidecar.start()
        self.sidecars.append(sidecar)
        screen.event(f"{name} started as process {sidecar.pid}")

    def _all_serve(self) -> bool:
        shards = [sidecar.shards() for sidecar in self.sidecars]
        return all(shards) and sum(shards) == PARTITIONS

    def _send_and_watch(self, screen: DemoScreen) -> None:
        """Sends, kills one sidecar while the burst is dispatched, starts another, and waits for the remaining
        messages."""
        parts = [Partition(target, index) for target in TARGETS for index in range(TARGET_PARTITIONS)]
        readers = Readers(self.kafka, parts)
        self.stack.callback(readers.close)
        begin_ms = now_ms()
        burst_ms = begin_ms + round(self.seconds * 1000 * BURST_SHARE)
        sender = DemoSender(self.kafka, plan(self.messages, self.seconds), self.ledger, begin_ms, burst_ms)
        self.stack.callback(sender.close)

        def at_burst() -> bool:
            if not sender.is_done:
                sender.send_until(now_ms())
            readers.read_new(self.ledger, _POLL_INTERVAL_S)
            return now_ms() >= burst_ms + _KILL_AFTER_MS and sender.is_done

        screen.event(f"sending {self.messages:,} messages, due within {self.seconds:g} s")
        self._wait(screen, at_burst, self.seconds + _CATCH_UP_S, "the requests were not sent in time")
        self._kill_one(screen)
        self._start_sidecar(screen)
        self._watch_arrivals(screen, readers)
        until_ms = now_ms() + _LISTEN_ON_MS
        while now_ms() < until_ms:
            readers.read_new(self.ledger, _POLL_INTERVAL_S)

    def _watch_arrivals(self, screen: DemoScreen, readers: Readers) -> None:
        """Waits until all messages have arrived, or until none has arrived for _CATCH_UP_S after the last due time. A
        slow machine thus gets more time as long as messages arrive."""
        while (before := self.ledger.distinct) < self.messages:

            def more_arrived(before: int = before) -> bool:
                readers.read_new(self.ledger, _POLL_INTERVAL_S)
                return self.ledger.distinct > before

            left_s = max(0.0, (self.ledger.last_due_ms - now_ms()) / 1000)
            try:
                self._wait(screen, more_arrived, left_s + _CATCH_UP_S, "")
            except _TooLate:
                late = f"only {before:,} of {self.messages:,} delivered, and no other within {_CATCH_UP_S:g} s"
                screen.event(late, "bold red")
                return
        screen.event(f"all {self.messages:,} delivered", "bold green")

    def _kill_one(self, screen: DemoScreen) -> None:
        victim = self.sidecars[0]
        shards = victim.shards()
        victim.kill()
        overdue = self.ledger.overdue(now_ms())
        what = f"killed {victim.name} (SIGKILL, process {victim.pid}) with {counted(shards, 'shard')} in mid-dispatch"
        screen.event(f"{what}: {overdue:,} messages were due and on the way", "bold red")

    def _wait(self, screen: DemoScreen, condition: Callable[[], bool], timeout_s: float, otherwise: str) -> None:
        """Shows the ledger until the condition holds. Raises _TooLate after `timeout_s`, and PostdateError if a sidecar
        has ended."""
        deadline_ms = now_ms() + timeout_s * 1000
        while not condition():
            self._check_sidecars()
            screen.show(self.ledger, self._sidecars_line())
            if now_ms() > deadline_ms:
                raise _TooLate(otherwise)
            time.sleep(_POLL_INTERVAL_S)

    def _check_sidecars(self) -> None:
        for sidecar in self.sidecars:
            if not sidecar.is_running() and not sidecar.was_killed:
                raise PostdateError(f"{sidecar.name} ended unexpectedly; the end of its output:\n{sidecar.log_tail()}")

    def _sidecars_line(self) -> str:
        states = (counted(one.shards(), "shard") if one.is_running() else "killed" for one in self.sidecars)
        return "   ".join(f"{one.name}: {state}" for one, state in zip(self.sidecars, states, strict=True))

    def _audit(self) -> bool:
        """Runs the audit. Returns True if it found every message delivered and no violation. Its progress goes to
        stderr."""
        self.console.print("audit: Spark reads the topics and compares every request with its outcome")
        arguments = ["audit", "-b", self.bootstrap, "--requests", REQUESTS, "--output", "json", "--slack", "1s"]
        arguments += ["--spark-conf", f"spark.local.dir={self.directory}"]
        audit = Child("audit", self.directory, arguments, show_stderr=True)
        self.stack.callback(audit.kill_group)  # with its JVM; it only reads
        audit.start()
        exit_code = audit.exit_code()
        outcome = read_audit(audit.stdout_file.read_text())
        if outcome:
            print_audit(self.console, outcome)
        else:
            self.console.print(f"the audit could not judge (exit code {exit_code})", style="bold red")
        return audit_agrees(outcome, exit_code, self.ledger.sent)


class _TooLate(PostdateError):
    """The awaited condition did not hold in time."""
