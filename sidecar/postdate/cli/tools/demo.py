"""`postdate demo`: a broker, two sidecars, a few thousand messages, a kill during delivery, and the audit."""

from __future__ import annotations

import logging
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console

from postdate.cli.commands import print_note
from postdate.cli.limits import DEV_POLL_S
from postdate.cli.options import seconds_option
from postdate.cli.tools.dev import StartProgress
from postdate.cli.tools.interrupts import Interrupted, interruptible
from postdate.kafka.errors import DevBrokerFailed, KafkaFault
from postdate.sidecar.errors import Exit, PostdateError

if TYPE_CHECKING:
    from postdate.tools.dev_broker.local_broker import DevBroker

#: A run that completes even on a busy machine.
SMALL_RUN = "postdate demo --messages 200 --seconds 5"


@click.command(short_help="Run a demonstration: two sidecars, a kill, the audit.")
@click.option(
    "--messages", type=click.IntRange(10, 200_000), default=4_000, show_default=True, help="Number of messages."
)
@seconds_option("--seconds", "20s", "4s", "10m", "Longest delay.")
@click.option("--keep", is_flag=True, help="Keep broker and sidecars running at the end, until Ctrl-C.")
def demo(messages: int, seconds: float, keep: bool) -> None:
    """Start a broker and two sidecars, schedule messages with mixed delays, kill one sidecar while it delivers, start
    another, and run the audit. Needs Java 17 or later and pyspark, and takes about a minute.

    Exit code 0 if the demo's count and the audit agree that no message was lost, repeated, early or altered; 4 if they
    do not; 1 if the run could not continue. In the last two cases, the logs of all processes are kept. At the end, and
    on Ctrl-C, the command stops every process that it started.
    """
    console = Console(highlight=False)
    try:
        with interruptible(), _directory() as directory, ExitStack() as stack:
            try:
                ok = _perform(console, directory, stack, messages, seconds, keep)
            except (PostdateError, KafkaFault):
                if _keep_logs(directory):
                    print_note(
                        f"if this machine is slow or busy, wait until it is idle, or try a smaller run: {SMALL_RUN}"
                    )
                raise
            if not ok:
                _keep_logs(directory)
    except Interrupted:
        console.show_cursor(True)  # the audit may have ended before it showed the cursor again
        print_note("stopped; nothing is left running")
        sys.exit(Exit.FAILED)
    sys.exit(Exit.OK if ok else Exit.VIOLATION)


def _perform(console: Console, directory: Path, stack: ExitStack, messages: int, seconds: float, keep: bool) -> bool:
    from postdate.tools.demo.show import START_TIMEOUT_S, Show
    from postdate.tools.demo.traffic import demo_clients
    from postdate.tools.dev_broker.local_broker import LocalBroker

    # Otherwise Python would print log lines of the client library between the lines of the demo.
    logging.basicConfig(filename=directory / "demo.log", format="%(asctime)s %(levelname)s %(message)s")
    began = time.monotonic()
    progress = StartProgress()
    broker = LocalBroker(0, directory / "broker", progress=progress)
    stack.callback(broker.kill)  # its data is not needed again
    stack.callback(progress.done)
    broker.start(START_TIMEOUT_S)
    progress.done()
    console.print(f"broker ready at {broker.bootstrap_servers} after {time.monotonic() - began:.1f} s")
    kafka = demo_clients(broker.bootstrap_servers)
    try:
        ok = Show(console, kafka, broker.bootstrap_servers, directory, stack, messages, seconds).perform()
    except (PostdateError, KafkaFault) as error:
        if broker.is_running():
            raise
        raise DevBrokerFailed(f"The broker ended; the end of its log:\n{broker.log_tail()}") from error
    verdict = "nothing lost, nothing repeated, nothing early" if ok else "NOT as promised, see above"
    console.print(f"verdict: {verdict} ({time.monotonic() - began:.0f} s)", style="bold green" if ok else "bold red")
    if keep:
        _wait_for_interrupt(console, broker)
    return ok


def _keep_logs(directory: Path) -> bool:
    """Copies the logs of all processes to a new directory, and prints its path. If all logs are empty, copies nothing
    and returns False."""
    logs = [*directory.glob("*.log"), *directory.glob("*.out"), *directory.glob("broker/broker.log")]
    if any(file.stat().st_size for file in logs):
        kept = Path(tempfile.mkdtemp(prefix="postdate-demo-failed-"))
        for file in logs:
            shutil.copy(file, kept)
        print_note(f"the logs of the broker and the sidecars are kept in {kept}")
        return True
    return False


def _wait_for_interrupt(console: Console, broker: DevBroker) -> None:
    """Waits until interrupted, or until the broker ends."""
    console.print(f"still running: {broker.bootstrap_servers}; Ctrl-C stops everything")
    try:
        while broker.is_running():
            time.sleep(DEV_POLL_S)
    except Interrupted:
        console.print("stopping")


@contextmanager
def _directory() -> Iterator[Path]:
    """Yields a temporary directory, and removes it at the end with all files of the killed processes."""
    with tempfile.TemporaryDirectory(prefix="postdate-demo-", ignore_cleanup_errors=True) as directory:
        yield Path(directory)
