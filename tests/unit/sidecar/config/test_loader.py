"""Goal: every configuration error is reported with its place and its remedy, and no invalid value becomes a default.

Method: real files in a temporary directory and literal environments go through `load`. The tests check the resulting
tree, the source of each value, and the sentences of ConfigError.
"""

from __future__ import annotations

import pickle
import re
from pathlib import Path

import pytest

from postdate.kafka.secrets import Secret
from postdate.sidecar.config.loader import Flags, Loaded, load, require_bootstrap
from postdate.sidecar.config.settings import Config, RequestTopicConfig
from postdate.sidecar.errors import ConfigError
from support.repository import ROOT


def loaded(tmp_path: Path, toml: str = "", environ: dict[str, str] | None = None, **flags: object) -> Loaded:
    """Returns the configuration of a TOML text, an environment, and flags by path with `__` for the dot."""
    file = tmp_path / "postdate.toml"
    file.write_text(toml)
    values = {name.replace("__", "."): value for name, value in flags.items()}
    return load(Flags(config_file=file, values=values), environ or {})


def problems(tmp_path: Path, toml: str = "", environ: dict[str, str] | None = None, **flags: object) -> str:
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, toml, environ, **flags)
    return str(caught.value)


def test_an_empty_configuration_gives_the_defaults() -> None:
    assert load(Flags(), {}).config == Config()


def test_flag_wins_over_environment_over_file_over_default(tmp_path: Path) -> None:
    toml = "workers = 2\ngroup_id = 'file'\n[dispatch]\npace_ms = 5\n"
    environ = {"POSTDATE_WORKERS": "3", "POSTDATE_GROUP_ID": "environment"}
    result = loaded(tmp_path, toml, environ, workers=4)
    assert (result.config.workers, result.config.group_id, result.config.dispatch.pace_ms) == (4, "environment", 5)
    assert result.source("workers") == "flag"
    assert result.source("group_id") == "POSTDATE_GROUP_ID"
    assert result.source("dispatch.pace_ms").endswith("postdate.toml")
    assert result.source("http.port") == "default"


def test_an_absent_flag_sets_nothing(tmp_path: Path) -> None:
    assert loaded(tmp_path, "workers = 2", workers=None, request_topics=()).config.workers == 2


@pytest.mark.parametrize(
    ("toml", "clause"),
    [
        ("wokers = 2", "unknown key wokers; did you mean workers?"),
        ("[dispatch]\npace = 5", "unknown key dispatch.pace; did you mean dispatch.pace_ms?"),
        ("pace_ms = 5", "unknown key pace_ms; did you mean dispatch.pace_ms?"),
        ("[dispach]\npace_ms = 5", "unknown key dispach; did you mean dispatch?"),
        (
            "[[request_topics]]\nname = 'a'\nhorizon = 5",
            "unknown key request_topics.horizon; did you mean request_topics.horizon_ms?",
        ),
        ("[[request_topics]]\nallow = ['a']", "has no name"),
        (
            "[[request_topics]]\nname = 'a'\nmessages_per_second_max = ['mails=20', 'sms']",
            "request topic a: messages_per_second_max: 'sms' is not a rule: write TARGET=NUMBER",
        ),
        ("dispatch = 3", "dispatch is a section: write [dispatch]"),
        ("[kafka]\ncommon = 'x'", "kafka.common is a table of librdkafka properties"),
        (
            "[http]\nxyzzy = 1",
            "unknown key http.xyzzy; known: host, port, probe_port, advertise, names, token_file, tls_",
        ),
    ],
)
def test_an_unknown_key_is_refused_with_the_nearest_known(tmp_path: Path, toml: str, clause: str) -> None:
    assert clause in problems(tmp_path, toml)


def test_an_unknown_variable_is_refused_with_the_nearest_known() -> None:
    with pytest.raises(
        ConfigError, match=r"unknown environment variable POSTDATE_WORKER; did you mean POSTDATE_WORKERS"
    ):
        load(Flags(), {"POSTDATE_WORKER": "2"})


def test_all_configuration_errors_are_reported_at_once(tmp_path: Path) -> None:
    text = problems(tmp_path, "wokers = 2\n[http]\nport = 70000\n", {"POSTDATE_LOG_LEVEL": "loud"})
    assert len(text.splitlines()) == 3


@pytest.mark.parametrize(
    "name",
    [
        "POSTDATE_SERVICE_HOST",
        "POSTDATE_SERVICE_PORT",
        "POSTDATE_SERVICE_PORT_HTTP",
        "POSTDATE_PORT",
        "POSTDATE_PORT_8080_TCP_ADDR",
        "POSTDATE_HEADLESS_SERVICE_HOST",
    ],
)
def test_service_variables_of_kubernetes_are_ignored(name: str) -> None:
    assert load(Flags(), {name: "10.0.0.1"}).config == Config()


@pytest.mark.parametrize("directory", ["sidecar", "wheel", "connectors", "tests/support"])
def test_every_variable_that_the_code_reads_itself_is_known_here(directory: str) -> None:
    root = ROOT / directory
    read = re.compile(r"""environ(?:\.get\(|\[)["'](POSTDATE_\w+)""")
    variables = {name for file in root.rglob("*.py") for name in read.findall(file.read_text())}
    for name in variables - {"POSTDATE_CONFIG"}:
        assert load(Flags(), {name: "x"}).config == Config()


def test_a_service_called_postdate_http_does_not_set_the_port() -> None:
    assert load(Flags(), {"POSTDATE_HTTP_PORT": "tcp://10.0.0.1:80"}).config.http.port == 8080


@pytest.mark.parametrize(
    ("toml", "clause"),
    [
        ("workers = 'many'", "workers takes a whole number"),
        ("workers = true", "workers takes a whole number"),
        ("workers = 0", "workers must be at least 1"),
        ("workers = 65", "workers must be at most 64"),
        ("[http]\nport = 65536", "http.port must be at most 65535"),
        ("[topics]\nretention_ms = '7 fortnights'", "takes milliseconds, or a duration"),
        ("[dispatch]\nsize_bytes_max = '16 elephants'", "takes bytes, or a size"),
        ("log_level = 'loud'", "log_level takes one of debug, info, warning, error"),
        ("group_id = 3", "group_id takes a text"),
        ("group_id = ''", "group_id is empty"),
        ("[[request_topics]]\nname = 'a'\nallow = [1]", "allow of a takes a list of texts"),
        ("[[request_topics]]\nname = 'a'\nallow = 1", "takes a list, or a text with commas"),
        ("[kafka.common]\n'security.protocol' = ['SSL']", "takes a text, a number, true or false"),
    ],
)
def test_a_value_that_an_option_does_not_accept_is_refused(tmp_path: Path, toml: str, clause: str) -> None:
    assert clause in problems(tmp_path, toml)


def test_durations_and_sizes_may_have_units(tmp_path: Path) -> None:
    toml = """
        [topics]
        retention_ms = "2d"
        segment_ms = "PT30M"
        [dispatch]
        size_bytes_max = "8MiB"
        [[request_topics]]
        name = "a"
        levels_ms = "1s 1m, 1h"
        horizon_ms = "10d"
    """
    config = loaded(tmp_path, toml).config
    assert (config.topics.retention_ms, config.topics.segment_ms) == (172_800_000, 1_800_000)
    assert config.dispatch.size_bytes_max == 8 * 1024 * 1024
    assert config.request_topic("a") == RequestTopicConfig(
        "a", levels_ms=(1000, 60_000, 3_600_000), horizon_ms=864_000_000
    )


@pytest.mark.parametrize(
    ("toml", "clause"),
    [
        ("[topics]\nretention_ms = '8d'", "a request must never outlive its fate"),
        ("[topics]\nreplication_factor = 1", "no write could ever be acknowledged"),
        ("[index]\ntick_ms = 70", "must divide an hour"),
        ("workers = 3\n[http]\nport = 65534", "3 workers need that many consecutive ports"),
        ("[http]\nhost = ''", "http.host is empty"),
        ("request_topics = ['a', 'a']", "named twice"),
        ("request_topics = ['a', 'a.store']", "a.store is already a topic of Postdate's own for a"),
        ("request_topics = ['a b']", "request topic 'a b'"),
        ("[[request_topics]]\nname = 'a'\nlevels_ms = []", "levels_ms must hold 1 to 64 delays"),
        ("[[request_topics]]\nname = 'a'\nallow = []", "allow is empty"),
        ("[[request_topics]]\nname = 'a'\nlevels_ms = ['2d']\nhorizon_ms = '1d'", "a level is longer than horizon_ms"),
    ],
)
def test_values_that_contradict_each_other_are_refused(tmp_path: Path, toml: str, clause: str) -> None:
    assert clause in problems(tmp_path, toml)


def test_names_select_among_the_topics_of_the_file(tmp_path: Path) -> None:
    toml = "[[request_topics]]\nname = 'a'\nallow = ['x']\n[[request_topics]]\nname = 'b'\n"
    assert loaded(tmp_path, toml).config.request_topic_names == ("a", "b")
    chosen = loaded(tmp_path, toml, request_topics=("a", "c")).config
    assert chosen.request_topics == (RequestTopicConfig("a", allow=("x",)), RequestTopicConfig("c"))
    assert loaded(tmp_path, toml, {"POSTDATE_REQUEST_TOPICS": "b,c"}).config.request_topic_names == ("b", "c")


def test_properties_come_quoted_dotted_from_the_environment_and_from_flags(tmp_path: Path) -> None:
    toml = "[kafka.common]\nsecurity.protocol = 'SASL_SSL'\n'log.connection.close' = false\n"
    file = tmp_path / "postdate.toml"
    file.write_text(toml)
    client = tmp_path / "client.properties"
    client.write_text("# as kcat reads it\nbootstrap.servers=broker:1\nsasl.mechanism = PLAIN\n\n")
    environ = {"POSTDATE_KAFKA_PRODUCER_LINGER_MS": "7"}
    config = load(Flags(file, client, (("client.rack", "a=b"),)), environ).config
    assert dict(config.kafka.common) == {
        "security.protocol": "SASL_SSL",
        "log.connection.close": "false",
        "sasl.mechanism": "PLAIN",
        "client.rack": "a=b",
    }
    assert dict(config.kafka.producer) == {"linger.ms": "7"}
    assert config.kafka.bootstrap_servers == "broker:1"


def test_a_properties_line_without_an_equal_sign_is_refused(tmp_path: Path) -> None:
    client = tmp_path / "client.properties"
    client.write_text("sasl.mechanism PLAIN\n")
    with pytest.raises(ConfigError, match="line 1: not name=value"):
        load(Flags(properties_file=client), {})


def test_a_secret_comes_from_a_file_that_any_place_names(tmp_path: Path) -> None:
    secret = tmp_path / "password"
    secret.write_text("swordfish\n")
    by_environment = load(Flags(), {"POSTDATE_KAFKA_COMMON_SASL_PASSWORD_FILE": str(secret)})
    by_file = loaded(tmp_path, f"[kafka.common]\n'sasl.password' = {{ file = '{secret}' }}\n")
    for result in (by_environment, by_file):
        password = result.config.kafka.common["sasl.password"]
        assert isinstance(password, Secret)
        assert str(password) == "swordfish"
        assert "swordfish" not in repr(result)
        assert str(secret) in result.source("kafka.common/sasl.password")


def test_a_secret_on_the_command_line_is_refused_and_not_repeated() -> None:
    with pytest.raises(ConfigError, match="POSTDATE_KAFKA_COMMON_SASL_PASSWORD") as caught:
        load(Flags(properties=(("sasl.password", "swordfish"),)), {})
    assert "swordfish" not in str(caught.value)


def test_a_secret_stays_a_secret_on_its_way_to_a_worker() -> None:
    config = load(Flags(), {"POSTDATE_KAFKA_COMMON_SASL_PASSWORD": "swordfish"}).config
    copy = pickle.loads(pickle.dumps(config))  # noqa: S301
    assert copy == config
    assert "swordfish" not in repr(copy)
    assert "swordfish" not in f"{copy.kafka.common['sasl.password']}"


@pytest.mark.parametrize(
    ("table", "name"),
    [
        ("producer", "transactional.id"),
        ("consumer", "isolation.level"),
        ("common", "bootstrap.servers"),
        ("producer", "partitioner"),
        ("consumer", "enable.auto.commit"),
    ],
)
def test_a_property_that_would_break_the_protocol_is_refused_with_the_reason(
    tmp_path: Path, table: str, name: str
) -> None:
    text = problems(tmp_path, f"[kafka.{table}]\n'{name}' = 'x'\n")
    assert f"kafka.{table}" in text
    assert name in text


@pytest.mark.parametrize(
    ("content", "clause"),
    [(b"workers = ", "is not TOML"), (b"\xff\xfe", "is not UTF-8"), (b"#" * (1024 * 1024 + 1), "larger than")],
)
def test_an_unsuitable_file_is_refused(tmp_path: Path, content: bytes, clause: str) -> None:
    file = tmp_path / "postdate.toml"
    file.write_bytes(content)
    with pytest.raises(ConfigError, match=clause):
        load(Flags(config_file=file), {})


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read .*absent\.toml: No such file"):
        load(Flags(), {"POSTDATE_CONFIG": str(tmp_path / "absent.toml")})


def test_without_a_broker_the_three_ways_to_name_one_are_listed() -> None:
    with pytest.raises(ConfigError, match="-b HOST:PORT, POSTDATE_KAFKA_BOOTSTRAP_SERVERS, or bootstrap_servers"):
        require_bootstrap(Config())


def test_directory_and_instance_have_working_defaults(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert Config().data_path == tmp_path / "postdate"
    assert Config(data_dir=Path("/x")).data_path == Path("/x")
    assert Config(instance="a").instance_name == "a"
    assert Config().instance_name.rpartition("-")[2].isdigit()
