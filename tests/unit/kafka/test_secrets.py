"""Goal: a password that was read from a file stays in use while the file cannot be read, even if it is not the one with
which the process started.

Method: a stand-in for a client records the passwords that it gets; the file is changed, removed and written again.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from postdate.kafka import limits
from postdate.kafka.producer import ConfluentPlainProducer
from postdate.kafka.secrets import Renewal, SecretFile
from postdate.kafka.settings import KafkaSettings


class _Client:
    def __init__(self) -> None:
        self.passwords: list[str] = []

    def set_sasl_credentials(self, username: str, password: str) -> None:
        assert username == "postdate"
        self.passwords.append(password)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "password"
    path.write_text("first\n")
    return path


def test_an_unreadable_file_changes_nothing(
    file: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(limits, "SECRET_CHECK_INTERVAL_S", 0.0)
    secret, client = SecretFile("first", file), _Client()
    renewal = Renewal(client, "postdate", secret)
    file.write_text("second\n")
    renewal.follow()
    file.unlink()
    renewal.follow()
    assert client.passwords == ["second"]
    assert secret.read() == "second", "a client that is created now gets the newest password, too"
    assert "its former content stays in use" in caplog.text
    file.write_text("third\n")
    renewal.follow()
    assert client.passwords == ["second", "third"]
    assert "third" not in caplog.text


def test_a_file_that_was_never_readable_keeps_the_configured_secret(tmp_path: Path) -> None:
    assert SecretFile("configured", tmp_path / "missing").read() == "configured"


def test_a_plain_producer_gets_a_new_password_when_it_flushes(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SECRET_CHECK_INTERVAL_S", 0.0)
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "postdate"}
    producer = ConfluentPlainProducer(
        KafkaSettings("localhost:1", common={**login, "sasl.password": SecretFile("", file)})
    )
    client = _Client()
    monkeypatch.setattr(producer._renewal, "_client", client)
    producer.flush(0.0)
    file.write_text("second\n")
    producer.flush(0.0)
    assert client.passwords == ["second"]
    producer.destroy()
