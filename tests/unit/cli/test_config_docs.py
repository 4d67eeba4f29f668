"""Goal: `config show` and `config docs` print every setting with its effective value, and no secret.

Method: the printed TOML is loaded and must give the same configuration. The reference must name every option of the
schema and every bound.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from postdate.cli.config_docs import BOUNDED, as_json_tree, as_markdown, as_toml, bounds_of
from postdate.kafka.settings import PROPERTY_NAMES
from postdate.sidecar.config.loader import Flags, load
from postdate.sidecar.config.schema import environment_name, leaves, topic_leaves
from postdate.sidecar.config.values import may_be_secret, without_secrets
from postdate.sidecar.errors import ConfigError
from support.brokers.librdkafka_names import written_names
from support.repository import ROOT

ENVIRON = {
    "POSTDATE_KAFKA_BOOTSTRAP_SERVERS": "broker:9092",
    "POSTDATE_KAFKA_COMMON_SASL_PASSWORD": "swordfish",
    "POSTDATE_KAFKA_CONSUMER_FETCH_MIN_BYTES": "7",
    "POSTDATE_REQUEST_TOPICS": "a,b",
    "POSTDATE_DISPATCH_PACE_MS": "9",
    "POSTDATE_INSTANCE": "postdate-0",
    "POSTDATE_DATA_DIR": "/data",
}


def test_the_printed_toml_read_back_is_the_same_configuration(tmp_path: Path) -> None:
    environ = {name: value for name, value in ENVIRON.items() if "PASSWORD" not in name}
    shown = load(Flags(), environ)
    file = tmp_path / "shown.toml"
    file.write_text(as_toml(shown))
    assert load(Flags(config_file=file), {}).config == shown.config


def test_each_line_shows_the_source_of_its_value() -> None:
    text = as_toml(load(Flags(), ENVIRON))
    assert "pace_ms = 9  # POSTDATE_DISPATCH_PACE_MS" in text
    assert 'host = "127.0.0.1"  # default' in text


def test_secrets_are_never_shown() -> None:
    loaded = load(Flags(), ENVIRON)
    for text in (as_toml(loaded), json.dumps(as_json_tree(loaded.config)), repr(loaded)):
        assert "swordfish" not in text
        assert "***" in text


def test_every_bound_is_shown() -> None:
    loaded = load(Flags(), {})
    shown, tree = as_toml(loaded, with_bounds=True), as_json_tree(loaded.config, with_bounds=True)["limits"]
    for package, module in BOUNDED.items():
        assert bounds_of(module), package
        assert tree[package] == bounds_of(module)
        assert all(f"# {name} = " in shown for name in bounds_of(module))


def test_bounds_are_shown_only_on_demand() -> None:
    loaded = load(Flags(), {})
    assert "limits" not in as_json_tree(loaded.config)
    assert "Bounds" not in as_toml(loaded)


def test_milliseconds_are_also_shown_as_a_duration() -> None:
    shown = as_toml(load(Flags(), {"POSTDATE_TOPICS_RETENTION_MS": "7d"}))
    assert "retention_ms = 604800000  # 7d; POSTDATE_TOPICS_RETENTION_MS" in shown
    assert "horizon_ms = 34560000000  # 400d" in shown


def test_the_reference_names_every_option_with_its_variable() -> None:
    text = as_markdown()
    for path, leaf in leaves().items():
        assert environment_name(path) in text
        assert leaf.option.doc in text or path == "request_topics"
    assert all(f"`{name}`" in text for name in topic_leaves())
    assert "`transactional.id`" in text


@pytest.mark.parametrize(
    "name",
    [
        "sasl.passwrd",
        "sasl.pasword",
        "sasl.passwords",
        "SASL.PASSWORD",
        "ssl.key.pasphrase",
        "client.secert",
        "api.tokens",
        "sasl.pwd",
        "sasl.login",
        "ssl.keypem",
        "ssl.private.key",
        "sasl.oauthbearer.confg",
    ],
)
def test_a_misspelt_secret_is_not_shown(name: str, tmp_path: Path) -> None:
    file = tmp_path / "postdate.toml"
    file.write_text(f'[kafka.common]\n"{name}" = "swordfish"\n')
    loaded = load(Flags(config_file=file), {})
    for text in (as_toml(loaded), json.dumps(as_json_tree(loaded.config)), repr(loaded)):
        assert "swordfish" not in text
        assert name in text


def test_every_property_of_the_client_library_that_is_no_secret_is_shown() -> None:
    secret = {name for name in written_names() if may_be_secret(name)}
    assert secret == {
        "sasl.oauthbearer.assertion.private.key.passphrase",
        "sasl.oauthbearer.assertion.private.key.pem",
        "sasl.oauthbearer.client.credentials.client.secret",
        "sasl.oauthbearer.client.secret",
        "sasl.oauthbearer.config",
        "sasl.password",
        "ssl.key.password",
        "ssl.key.pem",
        "ssl.keystore.password",
    }


def test_every_property_of_the_client_library_is_known() -> None:
    assert written_names() == PROPERTY_NAMES


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://id.example.com/token?key=a@swordfish", "https://***"),
        ("https://me:sword?fish@id.example.com/token", "https://***"),
        ("https://id.example.com/token?key=swordfish", "https://id.example.com/token?***"),
        ("https://id.example.com/token", "https://id.example.com/token"),
    ],
)
def test_no_part_of_a_secret_in_a_url_is_shown(url: str, shown: str) -> None:
    assert without_secrets(url) == shown


def test_user_and_password_in_a_url_are_not_shown() -> None:
    url = "https://me:swordfish/@,swordfish@id.example.com/token?client_secret=swordfish,1"
    environ = {
        "POSTDATE_KAFKA_COMMON_SASL_OAUTHBEARER_TOKEN_ENDPOINT_URL": url,
        "POSTDATE_KAFKA_BOOTSTRAP_SERVERS": "me:swordfish@broker:9092,other:9092",
        "POSTDATE_HTTP_NAMES": "postdate.example,me:swordfish@host",
    }
    loaded = load(Flags(), environ)
    for text in (as_toml(loaded), json.dumps(as_json_tree(loaded.config))):
        assert "swordfish" not in text
        assert "https://***@id.example.com/token" in text
        assert "***@broker:9092,other:9092" in text
    with pytest.raises(ConfigError) as caught:
        load(Flags(), {"POSTDATE_HTTP_ADVERTISE": url})
    assert "swordfish" not in str(caught.value)


def test_the_bounds_of_every_package_are_shown() -> None:
    """The bounds of the developers' tools are not shown, and those of Spark jobs, which do not run in the sidecar."""
    shown = {module.__file__ for module in BOUNDED.values()}
    modules = {str(path) for path in ROOT.glob("*/postdate/**/limits.py")}
    assert shown == {path for path in modules if "/tools/" not in path and "/spark/" not in path}
