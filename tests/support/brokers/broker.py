"""The real broker of the tests: the one at POSTDATE_TEST_BOOTSTRAP, or a new one for the session.

POSTDATE_TEST_BROKER selects the kind of a new broker: `local`, a JVM on this machine (the default: it starts fastest
and can be killed and paused), or `docker`, a container.

A conftest turns `running_broker` into a session fixture. Tests use unique topic and group names (`unique_name`), so one
broker serves a whole session. Tests that kill or pause a broker start a local one.
"""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from postdate.tools.dev_broker.jars import KAFKA_VERSION
from postdate.tools.dev_broker.local_broker import Jvm, LocalBroker
from support.brokers.containers import container_broker
from support.deployments.ports import free_port
from support.waiting.timeouts import WAIT_TIMEOUT_S


@dataclass(frozen=True)
class RunningBroker:
    """A running broker; `local` is its process if the tests may kill it, otherwise None."""

    bootstrap_servers: str
    local: LocalBroker | None


@contextmanager
def running_broker() -> Iterator[RunningBroker]:
    """Yields the broker at POSTDATE_TEST_BOOTSTRAP, or a new one that stops when the context exits."""
    given = os.environ.get("POSTDATE_TEST_BOOTSTRAP")
    kind = os.environ.get("POSTDATE_TEST_BROKER", "local")
    if kind not in ("local", "docker"):
        raise ValueError(f"POSTDATE_TEST_BROKER is {kind}; it must be local or docker")
    if given:
        yield RunningBroker(given, None)
    elif kind == "docker":
        with container_broker() as contained:
            yield RunningBroker(contained.bootstrap, None)
    else:
        with local_broker() as broker:
            yield RunningBroker(broker.bootstrap_servers, broker)


@contextmanager
def local_broker(version: str = KAFKA_VERSION, **properties: str) -> Iterator[LocalBroker]:
    """Yields a new local broker on a free port; underscores in setting names stand for dots."""
    with tempfile.TemporaryDirectory(prefix="postdate-broker-", ignore_cleanup_errors=True) as directory:
        settings = {name.replace("_", "."): value for name, value in properties.items()}
        broker = LocalBroker(free_port(), Path(directory), properties=settings, jvm=Jvm(version=version))
        broker.start(WAIT_TIMEOUT_S)
        try:
            yield broker
        finally:
            broker.kill()  # its data is not needed again


def unique_name(prefix: str) -> str:
    """Returns a topic name, group name or transactional id that no other test uses."""
    return f"{prefix}-{uuid4().hex[:10]}"
