"""`postdate dev`: runs a single-node Kafka broker in the foreground, for development."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.status import Status

from postdate.cli.commands import print_note
from postdate.cli.limits import DEV_POLL_S
from postdate.cli.tools.interrupts import Interrupted, interruptible
from postdate.sidecar.errors import PostdateError

if TYPE_CHECKING:
    from postdate.tools.dev_broker.local_broker import DevBroker


@click.command(short_help="Start a Kafka broker on this machine.")
@click.option("--port", type=click.IntRange(0, 65_535), default=9092, show_default=True, help="Port; 0: any free port.")
@click.option(
    "--data",
    type=click.Path(path_type=Path),
    help="Keep the topics in this directory; default: remove them at the end.",
)
@click.option("--docker", is_flag=True, help="Run the apache/kafka image instead of the local Java.")
@click.option("--image", help="Image for --docker; default: POSTDATE_KAFKA_IMAGE, or apache/kafka.")
def dev(port: int, data: Path | None, docker: bool, image: str | None) -> None:
    """Start a single-node Kafka broker on this machine, and stop it on Ctrl-C.

    Needs Java 17 or later. The first use downloads Kafka's jars (44 MB) into the cache directory. With --docker it
    needs only Docker, and pulls an image. Prints `ready: HOST:PORT` after a first transaction has succeeded.
    """
    if image is not None and not docker:
        raise click.UsageError("--image is for --docker")
    if docker and data is not None:
        raise click.UsageError("--data is for a broker on this machine; the container keeps its own")
    screen = StartProgress()
    with _data_directory(data) as directory, interruptible():
        broker = _docker_broker(port, image, screen) if docker else _local_broker(port, directory, screen)
        try:
            broker.start()
            screen.done()
            click.echo(f"ready: {broker.bootstrap_servers}")
            print_note("Ctrl-C stops it" + (f"; data stays in {directory}" if data else ""))
            while broker.is_running():
                time.sleep(DEV_POLL_S)
            status = broker.exit_status
            if status < 0:  # the log does not contain the reason
                raise PostdateError(f"signal {-status} has ended the broker")
            raise PostdateError(f"the broker ended with exit status {status}; the end of its log:\n{broker.log_tail()}")
        except Interrupted:
            print_note("stopping")
        finally:
            screen.done()
            broker.stop()


def _local_broker(port: int, directory: Path, screen: StartProgress) -> DevBroker:
    from postdate.tools.dev_broker.local_broker import LocalBroker

    return LocalBroker(port, directory, progress=screen)


def _docker_broker(port: int, image: str | None, screen: StartProgress) -> DevBroker:
    from postdate.tools.dev_broker.docker import DockerBroker

    return DockerBroker(port, image, progress=screen)


class StartProgress:
    """Shows the progress of the broker's start on stderr: a spinner on a terminal, otherwise one line for each step."""

    def __init__(self) -> None:
        self._status: Status | None = None
        self._last = ""

    def __call__(self, step: str, done: int, total: int) -> None:
        """Shows the current step. If `total` is 0, the number of parts is unknown."""
        text = f"{step} ({done} of {total})" if total else step
        if sys.stderr.isatty():
            if self._status is None:
                self._status = Console(stderr=True).status(text)
                self._status.start()
            self._status.update(text)
        elif text != self._last:
            print_note(text)
        self._last = text

    def done(self) -> None:
        """Removes the spinner."""
        if self._status is not None:
            self._status.stop()
            self._status = None


@contextmanager
def _data_directory(given: Path | None) -> Iterator[Path]:
    if given is not None:
        yield given
        return
    with tempfile.TemporaryDirectory(prefix="postdate-dev-") as temporary:
        yield Path(temporary)
