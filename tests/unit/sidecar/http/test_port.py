"""Goal: a process advertises an address at which the other processes reach it.

Method: the address is computed from configurations. No port is opened.
"""

from __future__ import annotations

import socket
from dataclasses import replace
from typing import Any

import pytest

from postdate.kafka.interface import GroupMember
from postdate.sidecar.config.loader import Flags, load
from postdate.sidecar.config.settings import Config, HttpConfig, KafkaConfig
from postdate.sidecar.errors import ConfigError
from postdate.sidecar.http.port import advertised_address

EVERYWHERE = "0.0.0.0"  # noqa: S104


def advertised(servers: str = "127.0.0.1:9092", **http: Any) -> str:
    return advertised_address(Config(kafka=KafkaConfig(servers), http=replace(HttpConfig(port=8081), **http)))


def test_the_advertised_address_is_the_configured_or_the_listening_one() -> None:
    assert advertised() == "127.0.0.1:8081"
    assert advertised(host="10.1.2.3") == "10.1.2.3:8081"
    assert advertised(host="::1") == "[::1]:8081"
    assert advertised(host=EVERYWHERE, advertise="pod-0.postdate") == "pod-0.postdate:8081"
    assert advertised(port=0) == ""


def test_a_process_that_listens_everywhere_advertises_its_address_towards_kafka() -> None:
    assert advertised(host=EVERYWHERE) == "127.0.0.1:8081"
    assert advertised("no port, 127.0.0.1:9092", host=EVERYWHERE) == "127.0.0.1:8081"
    assert advertised("nowhere", host="::") == f"{socket.gethostname()}:8081"


@pytest.mark.parametrize(
    ("client_id", "address"),
    [
        ("postdate@127.0.0.1:8081", "127.0.0.1:8081"),
        ("a@b@[::1]:8081", "[::1]:8081"),
        ("postdate", ""),
        ("me@example.com", ""),
        ("postdate@host:80/path", ""),
        ("postdate@host:65535", "host:65535"),
        ("x@h:99999", ""),
        ("x@h:0", ""),
        ("postdate@user:pass@host", ""),
    ],
)
def test_an_address_is_read_only_from_a_valid_client_id(client_id: str, address: str) -> None:
    assert GroupMember("", "", client_id, "", ()).address == address


def test_an_invalid_advertised_address_is_a_configuration_error() -> None:
    with pytest.raises(ConfigError, match=r"http\.advertise is 'host/path'"):
        load(Flags(None, None, (), {"kafka.bootstrap_servers": "b:1", "http.advertise": "host/path"}), {})
