"""Goal: nobody waits in front of a silent terminal because an address or a name is mistyped.

Method: addresses of this machine that take connections and that refuse them; a block that waits until it was told of;
and the commands that start Spark, over a simulated cluster, which must refuse before they do.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from postdate.sidecar.errors import Exit
from postdate.sidecar.silence import LOOK_AFTER_S, told_of_silence, unreachable
from support.command_bed import SimBed


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def _address(server: socket.socket) -> str:
    return f"127.0.0.1:{server.getsockname()[1]}"


def test_a_reason_for_each_address_unless_one_can_be_reached(listening: socket.socket) -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        refused = _address(gone)
    assert unreachable([refused, " nonsense"]) == f"{refused}: Connection refused; nonsense is no HOST:PORT"
    assert unreachable([refused, f"PLAINTEXT://{_address(listening)}"]) == ""


def test_who_waits_is_told_why() -> None:
    told, was_told = list[str](), threading.Event()

    def tell(text: str) -> None:
        told.append(text)
        was_told.set()

    with told_of_silence("127.0.0.1:1", tell):
        assert was_told.wait(60)
    assert told == ["no connection to Kafka yet, still trying: 127.0.0.1:1: Connection refused"]


def test_nobody_is_told_who_was_answered_at_once() -> None:
    told = list[str]()
    with told_of_silence("127.0.0.1:1", told.append):
        looking = next(thread for thread in threading.enumerate() if thread.name == "silence")
    looking.join(LOOK_AFTER_S + 60)
    assert told == []


@pytest.mark.parametrize("command", [["audit"], ["report"], ["repair", "audited"], ["bulk", "rows.csv"]])
def test_a_topic_that_is_not_there_is_told_before_spark_is_started(command: list[str]) -> None:
    result = SimBed().call(*command, "--requests", "nope")
    assert result.exit_code == Exit.USAGE, result.output
    assert "there is no request topic nope at" in result.stderr
    assert "starting Spark" not in result.stderr
