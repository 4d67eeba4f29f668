"""Goal: Postdate connects by every documented mechanism, needs exactly the documented ACLs, names a missing ACL, and
shows neither payloads nor secrets.

Method: a broker with TLS, SASL and an authorizer that allows nothing without an ACL. A sidecar with only the documented
ACLs serves a request topic. For another request topic, the test revokes one ACL at a time, compares the findings of
Postdate with it, and grants it again. The test searches the files, logs and answers of the sidecar under load for
payloads, ids and secrets.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from postdate.cli import config_docs
from postdate.kafka import limits
from postdate.kafka.client import ConfluentKafka
from postdate.kafka.errors import KafkaFault
from postdate.kafka.interface import Admin, Isolation, Operation, Partition
from postdate.kafka.secrets import SecretFile
from postdate.kafka.settings import KafkaSettings
from postdate.sidecar.cluster import rights
from postdate.sidecar.cluster.connection import kafka_of
from postdate.sidecar.cluster.producing import UnsentRequest, produce
from postdate.sidecar.cluster.rights import Right
from postdate.sidecar.cluster.topics import TopicRule
from postdate.sidecar.config.loader import Flags, load
from postdate.sidecar.config.settings import Config, RequestTopicConfig
from postdate.wire.headers import ACTION, AT, DEAD_DETAIL, DEAD_REASON, DELAY, ID, KEY, TOPIC, Headers
from support.brokers.certificates import KEY_PASSWORD
from support.brokers.secured_broker import CLIENT_SECRET, PASSWORD, SCRAM_PASSWORD, SecuredBroker, secured_broker
from support.deployments.command import run_postdate
from support.deployments.ports import free_port
from support.deployments.sidecar_deployment import SidecarDeployment
from support.deployments.sidecars import Sidecar, wait_until
from support.oracles.exactly_once import Reader, Sent
from support.waiting.rounds import LONGER, expect, first_round_in_time
from support.waiting.timeouts import WAIT_TIMEOUT_S
from support.web.http_steps import Client

_TOKEN = "the-token-of-this-module"  # noqa: S105
_SECRETS = (PASSWORD, SCRAM_PASSWORD, KEY_PASSWORD, CLIENT_SECRET, _TOKEN)
_PAYLOADS = ("payload-in-a-value", "payload-in-a-key", "payload-in-a-header", "payload-in-a-bad-time")
_ID = "the-id-of-somebody"
_STORE_AFTER_MS = 60_000
_LOAD = 300


class _SecuredTopic:
    """One request topic on the secured broker, with the documented ACLs and no others."""

    def __init__(self, broker: SecuredBroker, directory: Path) -> None:
        self.broker = broker
        self.deployment = SidecarDeployment(broker.super_servers, directory)
        self.directory = directory
        self.requests, self.target = self.deployment.new_requests(1), self.deployment.new_target()
        topic = RequestTopicConfig(self.requests, allow=(self.target,))
        self.needed = rights.needed(self.deployment.group_id, topic)
        broker.grant(self.needed)

    def file(self, common: dict[str, str], servers: str = "") -> Path:
        """Writes the configuration of a program that connects with these client settings, and returns its path."""
        file = self.directory / "postdate.toml"
        lines = [f'group_id = "{self.deployment.group_id}"', "[kafka]"]
        lines += [f'bootstrap_servers = "{servers or self.broker.sasl_servers}"', "[kafka.common]"]
        lines += [f"{json.dumps(name)} = {json.dumps(value)}" for name, value in common.items()]
        lines += ["[[request_topics]]", f'name = "{self.requests}"', f'allow = ["{self.target}"]']
        file.write_text("\n".join(lines))
        return file

    def config(self, common: dict[str, str], servers: str = "") -> Config:
        return load(Flags(config_file=self.file(common, servers)), {}).config

    def scram(self) -> dict[str, str]:
        return self.broker.sasl("SCRAM-SHA-512", self.directory, SCRAM_PASSWORD)

    def send(self, headers: Headers, value: str = _PAYLOADS[0], key: str = _PAYLOADS[1]) -> Sent:
        sender = self.deployment.sender()
        sent = sender.send(self.requests, Sent(self.target, key.encode(), value.encode(), headers))
        sender.flush()
        return sent


def _violations(config: Config) -> list[tuple[TopicRule, str]]:
    """Returns rule and remedy of each violation that `postdate topics check` finds."""
    kafka, (topic,) = kafka_of(config), config.request_topics
    admin = kafka.admin()
    violations = rights.transactional_id_violations(config, topic, kafka) + rights.violations(config, topic, admin)
    admin.close()
    return [(violation.rule, violation.remedy) for violation in violations]


def _settings(config: Config, admin_timeout_s: float) -> KafkaSettings:
    """Returns the settings that `kafka_of` uses, with a shorter timeout."""
    kafka = config.kafka
    return KafkaSettings(kafka.bootstrap_servers, dict(kafka.common), admin_timeout_s=admin_timeout_s)


def _refusal(config: Config, right: Right) -> str:
    """Performs the operation that a right permits. Returns Kafka's error, or an empty text if Kafka allows it."""
    kafka = kafka_of(config)
    part = Partition(right.name, 0)
    try:
        if right.resource == rights.GROUP:
            with closing(kafka.admin()) as admin:
                admin.group_offset(right.name, Partition(config.request_topics[0].name, 0))
        elif right.resource == rights.TRANSACTIONAL_ID:
            kafka.producer(f"{right.name}0").init(WAIT_TIMEOUT_S)
        elif right.operation is Operation.DESCRIBE_CONFIGS:
            with closing(kafka.admin()) as admin:
                settings = admin.describe([right.name], ["cleanup.policy"])[right.name].config
            return "" if settings else "no ACL allows to read the settings"
        elif right.operation is Operation.WRITE:
            produce(kafka, part, UnsentRequest(b"k", b"v", []))
        else:
            with closing(kafka.log_reader(part, 0, Isolation.READ_COMMITTED)) as reader:
                wait_until(lambda: reader.read(1, 0.1) == [] and reader.position() > 0, "the answer to a fetch")
    except KafkaFault as fault:
        return str(fault)
    return ""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    with secured_broker(tmp_path_factory.mktemp("broker")) as running:
        yield running


@pytest.fixture(scope="module")
def quiet(broker: SecuredBroker, tmp_path_factory: pytest.TempPathFactory) -> _SecuredTopic:
    """A request topic that no process serves."""
    return _SecuredTopic(broker, tmp_path_factory.mktemp("quiet"))


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512", "OAUTHBEARER", "mTLS"])
def test_each_way_in_finds_nothing_missing(quiet: _SecuredTopic, mechanism: str) -> None:
    broker, servers = quiet.broker, ""
    if mechanism == "mTLS":
        common, servers = broker.mutual_tls(quiet.directory), broker.tls_servers
    elif mechanism == "OAUTHBEARER":
        common = broker.oauth(quiet.directory)
    else:
        common = broker.sasl(mechanism, quiet.directory, PASSWORD if mechanism == "PLAIN" else SCRAM_PASSWORD)
    config, granted = quiet.config(common, servers), broker.tokens.granted
    assert _violations(config) == []
    assert (broker.tokens.granted > granted) is (mechanism == "OAUTHBEARER")
    shown = repr(config) + json.dumps(config_docs.as_json_tree(config))
    assert not [secret for secret in _SECRETS if secret in shown]


def test_clients_without_a_token_or_with_a_foreign_audience_are_rejected(
    quiet: _SecuredTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(secret: str, words: str) -> None:
        """Queries the broker, and fails unless the error contains `words` and not the secret."""

        def attempt(slower: int) -> None:
            config = quiet.config(quiet.broker.oauth(quiet.directory, secret))
            kafka = ConfluentKafka(_settings(config, admin_timeout_s=3.0 * slower))
            with closing(kafka.admin()) as admin, pytest.raises(KafkaFault) as refused:
                admin.cluster_id()
            why = f"{refused.value} {kafka.connection_fault(lambda: False)}"
            assert secret not in why
            expect(words in why, why)

        first_round_in_time(attempt, LONGER)

    tokens = quiet.broker.tokens
    refused = tokens.refused
    refuse("not-the-secret", "Failed to acquire SASL OAUTHBEARER token")
    assert tokens.refused > refused
    granted = tokens.granted
    monkeypatch.setattr(tokens, "audience", "somebody-else")
    refuse(CLIENT_SECRET, "invalid_token")
    assert tokens.granted > granted


def test_each_missing_acl_is_named_and_no_other(quiet: _SecuredTopic, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SILENCE_S", 0.2)  # each right to read makes one reader wait that long
    config = quiet.config(quiet.scram())
    for right in quiet.needed:
        quiet.broker.revoke(right)
        command = right.command(quiet.broker.sasl_servers, "User:postdate")
        assert _violations(config) == [(TopicRule.MISSING_RIGHT, command)]
        assert "no ACL allows" in _refusal(config, right), f"Kafka allows {right} without an ACL: it is not needed"
        quiet.broker.grant([right])
    assert _violations(config) == []


def test_a_process_that_lacks_rights_does_not_start_and_names_them(quiet: _SecuredTopic) -> None:
    file, gone = quiet.file(quiet.scram()), (quiet.needed[0], quiet.needed[4])
    for right in gone:
        quiet.broker.revoke(right)
    data = str(quiet.directory / "data")
    done = run_postdate("run", "--config", str(file), "--data", data, "--http-port", "0")
    assert done.returncode == 2, done.stderr
    for right in gone:
        assert f"{right.name} lacks an ACL that allows {right.operation.value}" in done.stderr
        assert right.command(quiet.broker.sasl_servers, "User:postdate") in done.stderr
    quiet.broker.grant(list(gone))


def test_a_client_uses_a_replaced_password_without_a_restart(
    quiet: _SecuredTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "SECRET_CHECK_INTERVAL_S", 0.0)
    common = quiet.broker.sasl("PLAIN", quiet.directory, "not-the-password")
    file = Path(common.pop("sasl.password.file"))
    common["sasl.password"] = SecretFile(file.read_text().strip(), file)

    def refused_client(slower: int) -> Admin:
        """Returns a client whose wrong password the broker has refused."""
        kafka = ConfluentKafka(KafkaSettings(quiet.broker.sasl_servers, common, admin_timeout_s=1.0 * slower))
        admin = kafka.admin()
        with pytest.raises(KafkaFault) as refused:
            admin.describe([quiet.requests])
        why = str(kafka.connection_fault(lambda: False))
        assert "not-the-password" not in f"{refused.value} {why}"
        expect("Authentication failed" in why, f"a wrong password is reported as: {why}")
        return admin

    admin = first_round_in_time(refused_client, LONGER)
    file.write_text(PASSWORD)

    def is_connected() -> bool:
        try:
            return admin.describe([quiet.requests]).keys() == {quiet.requests}
        except KafkaFault:
            return False

    wait_until(is_connected, "the new password is used")
    admin.close()


@pytest.fixture(scope="module")
def served(
    broker: SecuredBroker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[_SecuredTopic, Sidecar, Client]]:
    """A request topic, its sidecar, which uses SCRAM over TLS and logs at level debug, and a client of its API."""
    secured = _SecuredTopic(broker, tmp_path_factory.mktemp("served"))
    token_file, port = secured.directory / "token", free_port()
    token_file.write_text(_TOKEN)
    sidecar = Sidecar(
        "secured",
        broker.sasl_servers,
        [secured.requests],
        secured.directory,
        secured.deployment.group_id,
        dispatch={"retry_budget_ms": 0},
        common=secured.scram(),
        allow=[secured.target],
        topic={"store_after_ms": _STORE_AFTER_MS},
        http={"port": port, "token_file": str(token_file)},
        options=("--log-level", "debug"),
    )
    sidecar.start()
    sidecar.wait_for_shards(1)
    yield secured, sidecar, Client(port, _TOKEN)
    sidecar.kill()


def _load(secured: _SecuredTopic) -> None:
    """Sends requests of every kind with payloads that must not be shown, and returns after all due ones have ended."""
    sender, topic = secured.deployment.sender(), secured.target.encode()
    value, key, header, bad = (text.encode() for text in _PAYLOADS)
    in_hours = b"%d" % ((int(time.time()) + 7_200) * 1000)
    for number in range(_LOAD):
        named: Headers = [(ID, f"{_ID}-{number}".encode()), (KEY, key), ("h", header)]
        when = (AT, in_hours) if number % 3 == 0 else (DELAY, b"%d" % (number * 5))
        refused = number % 10 == 1
        headers = [*named, (TOPIC, topic), (DELAY, bad) if refused else when]
        sender.send(secured.requests, Sent(secured.target, f"{_ID}-{number}".encode(), value, headers))
        if number % 30 == 0:
            cancel: Headers = [(ACTION, b"cancel"), (ID, f"{_ID}-{number}".encode())]
            sender.send(secured.requests, Sent(secured.target, f"{_ID}-{number}".encode(), None, cancel))
    sender.flush()
    # Two thirds are due. The others are stored, and one in ten of them is cancelled. Each cancel ends, too.
    secured.deployment.wait_for_ends(_LOAD * 2 // 3 + 2 * (_LOAD // 30))


def test_under_load_nothing_shows_a_payload_or_a_secret(served: tuple[_SecuredTopic, Sidecar, Client]) -> None:
    topic, sidecar, client = served
    _load(topic)
    paths = ["metrics", "healthz", "readyz", "", "api/v1/openapi.json", "api/v1/pending?limit=1000"]
    paths += ["api/v1/pending/count", "api/v1/pending?state=parked", f"api/v1/requests/{topic.requests}/0/0"]
    answers = {path: client.get(f"/{path}").text for path in paths}
    assert json.loads(answers["api/v1/pending?limit=1000"])["entries"], "something is held"
    failed = {path: client.ask("GET", f"/{path}", None, {}).text for path in ("api/v1/pending?payload=true", "nothing")}
    refused = Client(client.port, "not-the-token").post("/api/v1/cancel", {"id": _ID, "topic": topic.requests}).text
    status = [path.read_text() for path in sidecar.data_dir.rglob("status.json")]
    assert status, "a shard writes its status"
    settings = run_postdate("config", "show", "--config", str(topic.file(topic.scram()))).stdout
    shown = {
        **answers,
        **failed,
        "log": sidecar.log_text(),
        "refused": refused,
        "status": "".join(status),
        "show": settings,
    }
    assert len(shown["log"].splitlines()) > 3
    for place, text in shown.items():
        leaked = [secret for secret in (*_SECRETS, *_PAYLOADS) if secret in text]
        assert not leaked, f"{place} shows {leaked}"
    for place in ("metrics", "healthz", "readyz", "log", "status"):
        assert _ID not in shown[place], f"{place} shows an id"


def test_a_right_revoked_at_run_time_is_named_and_used_when_granted_again(
    served: tuple[_SecuredTopic, Sidecar, Client],
) -> None:
    secured, sidecar, _ = served
    ended = _count_ends(secured)
    (shards,) = (right for right in secured.needed if right.resource == rights.TRANSACTIONAL_ID)
    secured.broker.revoke(shards)
    secured.send([(TOPIC, secured.target.encode()), (DELAY, b"0")])
    sidecar.wait_for_log("no ACL allows Write on this transactional id")
    secured.broker.grant([shards])
    secured.deployment.wait_for_ends(ended + 1)
    (target,) = (right for right in secured.needed if right.of_target)
    secured.broker.revoke(target)
    forbidden = secured.send([(TOPIC, secured.target.encode()), (DELAY, b"0")])
    secured.deployment.wait_for_ends(ended + 2)
    dead_letters = Reader(secured.broker.super_servers, [f"{secured.requests}.dead-letters"])
    (dead_letter,) = [seen for seen in dead_letters.to_end() if seen.origin == forbidden.origin]
    dead_letters.close()
    assert dead_letter.last(DEAD_REASON) == b"unauthorized"
    assert f"no ACL allows Write on topic {secured.target}".encode() in dead_letter.last(DEAD_DETAIL)
    secured.broker.grant([target])


def _count_ends(secured: _SecuredTopic) -> int:
    """Returns how many requests have ended so far, by the dispatch log."""
    reader = secured.deployment.reader(f"{secured.requests}.dispatch-log")
    reader.to_end()
    reader.close()
    fates = [json.loads(seen.value or b"{}").get("fates", []) for seen in reader.records]
    return len({fate[0] for record_fates in fates for fate in record_fates if fate[2] not in ("stored", "moved")})
