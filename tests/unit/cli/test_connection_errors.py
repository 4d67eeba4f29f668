"""Goal: a command prints why Kafka does not answer, for example because of a mistyped address.

Method: addresses that refuse connections, do not exist or never answer; a block that waits until the reason is printed;
and the commands that start Spark, over a simulated cluster, which must fail before Spark starts.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from postdate.cli import postdate
from postdate.kafka.connection_fault import connection_fault
from postdate.kafka.errors import NotAuthorized, Unreachable
from postdate.kafka.settings import KafkaSettings
from postdate.sidecar.cluster.connection_errors import answered
from postdate.sidecar.errors import Exit
from support.deployments.simulated_cluster import SimulatedCluster
from support.waiting.timeouts import WAIT_TIMEOUT_S


@contextmanager
def _nobody() -> Iterator[KafkaSettings]:
    """An address of this machine that refuses connections."""
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    yield KafkaSettings(f"127.0.0.1:{port}")


def test_the_reason_is_that_of_the_client_library() -> None:
    with _nobody() as settings:
        assert f"{settings.bootstrap_servers} failed: Connection refused" in str(
            connection_fault(settings, lambda: False)
        )
    assert "Failed to resolve" in str(connection_fault(KafkaSettings("no-such-host.invalid:9092"), lambda: False))


def test_an_answer_ends_the_search_for_a_reason() -> None:
    asked = list[bool]()

    def over() -> bool:
        asked.append(True)
        return len(asked) > 1

    with socket.create_server(("127.0.0.1", 0)) as silent:
        assert connection_fault(KafkaSettings(f"127.0.0.1:{silent.getsockname()[1]}"), over) is None
    assert len(asked) == 2


def test_a_waiting_command_prints_the_reason_and_ends() -> None:
    printed, forever = list[str](), threading.Event()
    fault = Unreachable("Connection refused")
    try:
        with pytest.raises(Unreachable) as caught:
            answered(forever.wait, lambda over: None if over() else fault, printed.append, restart_timeout_s=0.01)
    finally:
        forever.set()
    assert caught.value is fault
    assert printed == ["no answer from Kafka yet, still trying: Connection refused"]


def test_a_broker_that_answers_after_all_is_enough() -> None:
    printed, was_printed = list[str](), threading.Event()

    def tell(text: str) -> None:
        printed.append(text)
        was_printed.set()

    assert answered(lambda: was_printed.wait(WAIT_TIMEOUT_S), lambda over: Unreachable("x"), tell, WAIT_TIMEOUT_S)
    assert printed == ["no answer from Kafka yet, still trying: x"]


def test_an_immediate_answer_prints_no_reason() -> None:
    printed = list[str]()
    assert answered(lambda: 7, lambda over: Unreachable("x"), printed.append) == 7
    assert printed == []


def test_the_error_of_the_request_is_raised() -> None:
    def refuse() -> None:
        raise NotAuthorized("no ACL")

    with pytest.raises(NotAuthorized):
        answered(refuse, lambda over: None, print)


def test_a_command_at_an_address_that_refuses_ends_before_the_time_out() -> None:
    with _nobody() as settings:
        result = CliRunner().invoke(postdate, ["topics", "check", "-b", settings.bootstrap_servers])
    assert result.exit_code == Exit.FAILED
    warning, error = result.stderr.splitlines()
    assert warning.startswith("warning: no answer from Kafka yet, still trying:")
    assert error.startswith(f"error: no answer from {settings.bootstrap_servers}; is that the address of a broker?")
    assert "Connection refused" in error, "the request's own error is a time-out"


@pytest.mark.parametrize("command", [["audit"], ["report"], ["repair", "audited"], ["bulk", "rows.csv"]])
def test_a_missing_topic_is_reported_before_spark_starts(command: list[str]) -> None:
    result = SimulatedCluster().call(*command, "--requests", "nope")
    assert result.exit_code == Exit.USAGE, result.output
    assert "request topic nope does not exist at" in result.stderr
    assert "starting Spark" not in result.stderr


@pytest.mark.parametrize("command", [["audit"], ["report"], ["repair", "audited"], ["bulk", "rows.csv"]])
def test_a_wrong_java_home_is_named_before_spark_is_started(
    command: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    result = SimulatedCluster().call(*command)
    assert result.exit_code == Exit.USAGE, result.output
    assert f"error: Spark needs Java, and JAVA_HOME is {tmp_path}, which has no bin/java" in result.stderr
    assert "starting Spark" not in result.stderr
