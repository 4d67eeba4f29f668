"""Goal: on a real Kafka, `dev`, `topics` and `send` print, create, refuse and produce what their documentation
promises.

Method: the broker of this module is a `postdate dev` process. The other commands run in this process with click's
runner. The test reads the records back with the Kafka interface.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from postdate.cli import postdate
from postdate.kafka.interface import Admin, Isolation, Partition, Record
from postdate.kafka.settings import KafkaSettings
from postdate.sidecar.cluster import connection
from postdate.sidecar.cluster.connection import admin_of, kafka_of
from postdate.sidecar.config.settings import Config, KafkaConfig
from postdate.sidecar.errors import Exit
from postdate.wire.origins import parse_origin
from postdate.wire.topics import OwnTopics
from postdate.wire.values.murmur2 import partition_for
from support.brokers.broker import unique_name
from support.brokers.topic_changes import alter_topic_config
from support.deployments.ports import free_port
from support.repository import ROOT
from support.waiting.timeouts import WAIT_TIMEOUT_S

PROGRAM = [sys.executable, "-c", "from postdate.cli import main; main()"]


def start_dev(*arguments: str) -> subprocess.Popen[str]:
    """Starts a `postdate dev` process."""
    path = os.pathsep.join(str(ROOT / root) for root in ("sidecar", "wheel", "connectors"))
    return subprocess.Popen(
        [*PROGRAM, "dev", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )


def ready_address(process: subprocess.Popen[str]) -> str:
    """Waits until the process is ready, at most until the test times out, and returns the address that it prints."""
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        assert process.stderr is not None
        pytest.fail(f"postdate dev ended: {process.stderr.read()}")
    match = re.fullmatch(r"ready: (\S+:\d+)\n", line)
    assert match is not None, line
    return match[1]


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    process = start_dev("--port", str(free_port()), "--data", str(tmp_path_factory.mktemp("dev")))
    try:
        yield ready_address(process)
        process.send_signal(signal.SIGTERM)
        _, stderr = process.communicate(timeout=WAIT_TIMEOUT_S)
        assert process.returncode == Exit.OK, stderr
        assert "Traceback" not in stderr
    finally:
        process.kill()
        process.communicate()


@pytest.fixture
def admin(bootstrap: str) -> Iterator[Admin]:
    with admin_of(kafka_of(Config(kafka=KafkaConfig(bootstrap)))) as admin:
        yield admin


@pytest.fixture
def requests(bootstrap: str) -> str:
    """A new request topic with the topics beside it."""
    name = unique_name("requests")
    assert call(bootstrap, "topics", "create", "--requests", name).exit_code == 0
    return name


def call(bootstrap: str, *arguments: str, stdin: bytes | None = None) -> Result:
    return CliRunner().invoke(postdate, [*arguments, "-b", bootstrap], input=stdin)


def alter(admin: Admin, topic: str, setting: str, value: str) -> None:
    """Changes a setting, and waits until the broker reports it. The controller answers before the broker has it."""
    alter_topic_config(admin, topic, {setting: value})
    deadline = time.monotonic() + WAIT_TIMEOUT_S
    while admin.describe([topic], [setting])[topic].config[setting] != value:
        assert time.monotonic() < deadline, f"{setting} of {topic} does not become {value}"


def read_back(bootstrap: str, origin: str) -> Record:
    """Returns the committed record at an origin."""
    topic, partition, offset = parse_origin(origin.strip().encode())
    kafka = kafka_of(Config(kafka=KafkaConfig(bootstrap)))
    reader = kafka.log_reader(Partition(topic, partition), offset, Isolation.READ_COMMITTED)
    try:
        deadline = time.monotonic() + WAIT_TIMEOUT_S
        while time.monotonic() < deadline:
            records = reader.read(1, 1.0)
            if records:
                return records[0]
    finally:
        reader.close()
    pytest.fail(f"no record at {origin}")


def test_topics_are_created_with_the_wire_formats_settings_and_pass_the_check(bootstrap: str, admin: Admin) -> None:
    name = unique_name("requests")
    created = call(bootstrap, "topics", "create", "--requests", name, "--partitions", "3")
    assert created.exit_code == 0
    assert set(created.stdout.split()) == OwnTopics.of(name).names()
    assert created.stderr.count("the cluster has 1 broker") == 1
    live = admin.describe(OwnTopics.of(name).names(), ("cleanup.policy", "retention.ms", "min.insync.replicas"))
    assert {len(info.partitions) for info in live.values()} == {3}
    assert {info.config["min.insync.replicas"] for info in live.values()} == {"1"}
    assert live[f"{name}.store"].config["cleanup.policy"] == "compact"
    checked = call(bootstrap, "topics", "check", "--requests", name)
    assert (checked.exit_code, checked.stdout) == (0, f"ok: {name} and the topics beside it follow the rules\n")


def test_a_requested_replication_factor_is_not_lowered(bootstrap: str, admin: Admin) -> None:
    name = unique_name("requests")
    result = call(bootstrap, "topics", "create", "--requests", name, "--replication-factor", "2")
    assert result.exit_code == Exit.USAGE
    assert "replication" in result.stderr.lower()
    assert admin.describe([name]) == {}


def test_existing_topics_are_kept_only_with_allow_existing(bootstrap: str, requests: str) -> None:
    again = call(bootstrap, "topics", "create", "--requests", requests)
    assert again.exit_code == Exit.FAILED
    assert "--allow-existing" in again.stderr
    allowed = call(bootstrap, "topics", "create", "--requests", requests, "--allow-existing")
    assert (allowed.exit_code, allowed.stdout) == (0, "")


def test_topics_beside_an_existing_request_topic_follow_it(bootstrap: str, requests: str, admin: Admin) -> None:
    admin.delete_topics([f"{requests}.dead-letters"])
    alter(admin, requests, "max.message.bytes", "2000000")
    admin.add_partitions({requests: 6})
    result = call(bootstrap, "topics", "create", "--requests", requests, "--allow-existing", "--partitions", "2")
    assert result.stdout.split() == [f"{requests}.dead-letters"]
    assert f"{requests} already exists and keeps its 6 partitions" in result.stderr
    live = admin.describe(OwnTopics.of(requests).names(), ("max.message.bytes",))
    assert {len(info.partitions) for info in live.values()} == {6}
    assert live[f"{requests}.dead-letters"].config["max.message.bytes"] == "2065536"


def test_check_names_each_violation_and_exits_with_4(bootstrap: str, requests: str, admin: Admin) -> None:
    alter(admin, f"{requests}.dispatch-log", "retention.ms", "3600000")
    alter(admin, requests, "message.timestamp.type", "CreateTime")
    text = call(bootstrap, "topics", "check", "--requests", requests)
    assert text.exit_code == Exit.VIOLATION
    assert "violation [dispatch-log-retention]" in text.stdout
    assert "warning [create-time]" in text.stdout
    as_json = json.loads(call(bootstrap, "topics", "check", "--requests", requests, "--output", "json").stdout)
    assert not as_json["ok"]
    assert [violation["refuses"] for violation in as_json["violations"]] == [True, False]
    assert all(violation["remedy"] for violation in as_json["violations"])


def test_check_reports_missing_topics(bootstrap: str) -> None:
    result = call(bootstrap, "topics", "check", "--requests", unique_name("absent"))
    assert result.exit_code == Exit.VIOLATION
    assert "postdate topics create" in result.stdout


def test_send_prints_the_origin_of_the_record_it_produced(bootstrap: str, requests: str) -> None:
    arguments = ["send", "--requests", requests, "--topic", requests.replace("requests", "orders"), "--delay", "5s"]
    result = call(bootstrap, *arguments, "--key", "k", "--value", "v", "-H", "a=1", "-H", "a=2", "-H", "b", "-H", "c=")
    assert result.exit_code == 0
    assert "does not exist now" in result.stderr
    topic, partition, _ = parse_origin(result.stdout.strip().encode())
    assert (topic, partition) == (requests, partition_for(b"k", 4))
    record = read_back(bootstrap, result.stdout)
    assert (record.key, record.value, record.log_append) == (b"k", b"v", True)
    assert record.headers is not None
    assert record.headers[:4] == [("a", b"1"), ("a", b"2"), ("b", None), ("c", b"")]
    assert ("postdate-delay", b"5s") in record.headers


def test_send_takes_a_binary_value_from_standard_input(bootstrap: str, requests: str) -> None:
    value = bytes(range(256))
    arguments = ["send", "--requests", requests, "--topic", "t", "--level", "0", "--value", "-"]
    record = read_back(bootstrap, call(bootstrap, *arguments, stdin=value).stdout)
    assert (record.key, record.value) == (None, value)


def test_send_as_json_has_the_due_time_by_the_brokers_clock(bootstrap: str, requests: str) -> None:
    arguments = ["send", "--requests", requests, "--topic", "t", "--delay", "90s", "--output", "json", "--id", "i"]
    result = json.loads(call(bootstrap, *arguments).stdout)
    assert result["due_ms"] == result["sent_ms"] + 90_000
    record = read_back(bootstrap, result["origin"])
    assert record.timestamp_ms == result["sent_ms"]
    assert record.key == b"i"


def test_send_beyond_the_horizon_is_refused(bootstrap: str, requests: str, tmp_path: Path) -> None:
    """If long delays are not stored, the horizon is at most half of the retention of the request topic."""
    arguments = ["send", "--requests", requests, "--topic", "t", "--delay"]
    assert call(bootstrap, *arguments, "4d").exit_code == Exit.OK
    config = tmp_path / "postdate.toml"
    config.write_text(f'[[request_topics]]\nname = "{requests}"\nstore_after_ms = 0\n')
    for refused in ([*arguments, "1000d"], [*arguments, "4d", "--config", str(config)]):
        result = call(bootstrap, *refused)
        assert result.exit_code == Exit.USAGE
        assert "beyond-horizon" in result.stderr


def test_send_to_a_missing_request_topic_names_the_remedy(bootstrap: str) -> None:
    name = unique_name("absent")
    result = call(bootstrap, "send", "--requests", name, "--topic", "t", "--delay", "1s")
    assert result.exit_code == Exit.USAGE
    assert f"postdate topics create -b {bootstrap} --requests {name}" in result.stderr


def test_an_absent_broker_is_a_failure_and_not_a_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "KafkaSettings", partial(KafkaSettings, admin_timeout_s=5.0))
    started = time.monotonic()
    nobody = f"127.0.0.1:{free_port()}"
    result = call(nobody, "topics", "check")
    assert result.exit_code == Exit.FAILED
    lines = result.stderr.splitlines()
    assert lines[0].startswith("warning: no answer from Kafka yet, still trying:")
    assert lines[-1].startswith(f"error: no answer from {nobody}")
    assert time.monotonic() - started < 50, "less than the minute after which the client library gives up"


def test_a_port_in_use_is_reported_with_the_remedy(bootstrap: str, tmp_path: Path) -> None:
    process = start_dev("--port", bootstrap.rpartition(":")[2], "--data", str(tmp_path))
    stdout, stderr = process.communicate(timeout=WAIT_TIMEOUT_S)
    assert (process.returncode, stdout) == (Exit.FAILED, "")
    assert "--port" in stderr
