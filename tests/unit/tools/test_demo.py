"""Goal: `postdate demo` completes on a slow and busy machine. If it fails, it names the cause, the logs and a remedy.

Method: the clients of the demo run against a simulated broker that does not answer. The command runs with substituted
steps that fail.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from postdate.cli import postdate
from postdate.cli.tools import demo as command
from postdate.kafka import limits
from postdate.kafka.errors import KafkaFault, Unreachable
from postdate.kafka.interface import NewTopic
from postdate.sidecar.errors import PostdateError, TransientError
from postdate.tools.demo.ledger import Ledger
from postdate.tools.demo.plan import PARTITIONS, REQUESTS, plan
from postdate.tools.demo.show import Show
from postdate.tools.demo.traffic import DemoSender, demo_clients
from postdate.tools.dev_broker.local_broker import LocalBroker
from support.kafka_simulator import SimBroker, SimKafka

LATE_MS = 10**15


def test_a_pause_of_the_broker_loses_no_request() -> None:
    """A shard repeats a write after a time-out. The demo sends each request once, so it needs a longer time-out."""
    settings = demo_clients("nowhere:1").settings
    assert settings.producer_conf(None, 1_000_000)["message.timeout.ms"] >= 30 * limits.MESSAGE_TIMEOUT_MS
    assert settings.admin_timeout_s > limits.ADMIN_TIMEOUT_S


def _sender(broker: SimBroker, ledger: Ledger) -> DemoSender:
    broker.create(NewTopic(REQUESTS, PARTITIONS, 1, {}))
    return DemoSender(SimKafka(broker), plan(40, 4.0), ledger, 0, 2_000)


def test_sending_does_not_wait_for_acknowledgements() -> None:
    broker, ledger = SimBroker(), Ledger()
    sender = _sender(broker, ledger)
    broker.topics[REQUESTS].logs[2].hold()
    sender.send_until(LATE_MS)
    assert 0 < ledger.sent < 40
    assert not sender.is_done


def test_a_lost_request_ends_the_demo_with_its_cause() -> None:
    broker, ledger = SimBroker(), Ledger()
    sender = _sender(broker, ledger)
    broker.topics[REQUESTS].logs[2].hold()
    sender.send_until(LATE_MS)
    broker.time.wait(60_000)
    with pytest.raises(TransientError, match=r"the broker did not acknowledge a request: .*in time"):
        sender.send_until(LATE_MS)


def test_an_acknowledgement_without_an_offset_is_no_evidence_of_a_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library reports no offset if the answer of the broker was lost. Then the ledger does not know the origin."""
    broker, ledger = SimBroker(), Ledger()
    sender = _sender(broker, ledger)

    def produce(*arguments: Any) -> None:
        arguments[-1](None, -1, -1)

    monkeypatch.setattr(sender._producer, "produce", produce)
    with pytest.raises(TransientError, match="before its offset arrived"):
        sender.send_until(LATE_MS)
    assert ledger.sent == 0


@pytest.mark.parametrize("error", [TransientError("too slow"), Unreachable("no answer")])
def test_a_demo_that_cannot_continue_names_its_logs_and_a_smaller_run(
    error: PostdateError | KafkaFault, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_console: object, directory: Path, *_: object) -> bool:
        (directory / "sidecar-1.log").write_text("it waits\n")
        (directory / "broker").mkdir()
        (directory / "broker" / "broker.log").write_text("it starts\n")
        raise error

    monkeypatch.setattr(command, "_perform", fail)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    done = CliRunner().invoke(postdate, ["demo"])
    assert (done.exit_code, f"error: {error}" in done.stderr) == (1, True), done.stderr
    assert "a smaller run: postdate demo --messages 200 --seconds 5" in done.stderr
    (kept,) = re.findall(r"kept in (\S+)", done.stderr)
    assert {file.name for file in Path(kept).iterdir()} == {"sidecar-1.log", "broker.log"}


@pytest.mark.parametrize(("runs", "cause"), [(True, "no answer"), (False, "The broker ended")])
def test_a_broker_that_has_ended_is_the_cause(runs: bool, cause: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel may kill the broker if memory runs out. The clients then only see time-outs."""

    def perform(_: object) -> bool:
        raise Unreachable("no answer")

    monkeypatch.setattr(LocalBroker, "start", lambda *_: None)
    monkeypatch.setattr(LocalBroker, "is_running", lambda _: runs)
    monkeypatch.setattr(Show, "perform", perform)
    assert f"error: {cause}" in CliRunner().invoke(postdate, ["demo"]).stderr


def test_a_demo_without_java_blames_no_busy_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> bool:
        raise TransientError("there is no java on PATH")

    monkeypatch.setattr(command, "_perform", fail)
    assert CliRunner().invoke(postdate, ["demo"]).stderr == "error: there is no java on PATH\n"
