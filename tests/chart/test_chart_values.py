"""Goal: Helm refuses a mistake in the values before it installs any object, with a message that names the mistake; the
README describes the values that the chart has; and every option of the program can be set. Method: Helm renders values
with one mistake each. The test compares the generated parts of README and schema with their sources.
"""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import yaml

from postdate.kafka.settings import refuse
from postdate.sidecar.config.rate_rules import RateRules
from postdate.sidecar.config.schema import REQUEST_TOPICS, leaves
from support.deployments.helm import NEEDED, ChartRefused, Helm, Values, merged
from support.tidiness import document_rules
from support.tidiness.chart_documents import (
    CHART,
    OWNED,
    OWNED_SECTIONS,
    config_schema,
    described,
    properties_schema,
    readme,
    request_topic_schema,
    schema,
)

VALUES = (CHART / "values.yaml").read_text(encoding="utf-8")
SCHEMA = (CHART / "values.schema.json").read_text(encoding="utf-8")

OAUTH = {"mechanism": "OAUTHBEARER", "existingSecret": "s", "username": "u", "tokenEndpointUrl": "https://id"}
MISTAKES: list[tuple[Values, str]] = [
    ({"replicas": 3}, "additional properties 'replicas' not allowed"),
    ({"replicaCount": -1}, "at '/replicaCount': minimum"),
    ({"replicaCount": "3"}, "at '/replicaCount': got string, want integer"),
    ({"kafka": {"bootstrapServers": "kafka"}}, "at '/kafka/bootstrapServers'"),
    ({"kafka": {"bootstrapServers": ""}}, "kafka.bootstrapServers is required: HOST:PORT"),
    ({"kafka": {"sasl": {"mechanism": "SCRAM"}}}, "at '/kafka/sasl/mechanism': value must be one of"),
    ({"kafka": {"sasl": {"password": "x"}}}, "additional properties 'password' not allowed"),
    ({"kafka": {"sasl": {"mechanism": "PLAIN", "username": "u"}}}, "kafka.sasl.existingSecret is required"),
    ({"kafka": {"sasl": {"mechanism": "PLAIN", "existingSecret": "s"}}}, "kafka.sasl.username or"),
    (
        {"kafka": {"sasl": {"mechanism": "OAUTHBEARER", "existingSecret": "s", "username": "u"}}},
        "kafka.sasl.tokenEndpointUrl is required",
    ),
    ({"kafka": {"sasl": {"existingSecret": "s"}}}, "kafka.sasl.mechanism is empty"),
    ({"kafka": {"sasl": {"username": "u"}}}, "kafka.sasl.mechanism is empty"),
    ({"kafka": {"tls": {"ca": {"existingSecret": "s"}}}}, "kafka.tls.enabled is false"),
    (
        {"kafka": {"common": {"sasl": {"username": "u"}}}},
        "at '/kafka/common': additional properties 'sasl' not allowed",
    ),
    ({"kafka": {"common": {"client.rak": "a"}}}, "at '/kafka/common': additional properties 'client.rak'"),
    ({"kafka": {"producer": {"acks": "1"}}}, "at '/kafka/producer': additional properties 'acks' not allowed"),
    ({"kafka": {"admin": {"client.id": ["a"]}}}, "at '/kafka/admin/client.id': got array, want"),
    ({"requestTopics": []}, "at '/requestTopics': minItems"),
    ({"requestTopics": [{"name": "r"}]}, "r needs `allow`"),
    ({"requestTopics": [{"allow": ["*"]}]}, "missing property 'name'"),
    ({"requestTopics": [{"name": "r", "allow": "*"}]}, "at '/requestTopics/0/allow': got string, want array"),
    ({"requestTopics": [{"name": "r", "allow": ["*"], "horizon": "1d"}]}, "additional properties 'horizon'"),
    ({"requestTopics": [{"name": "r", "allow": ["*"], "horizon_ms": "soon"}]}, "at '/requestTopics/0/horizon_ms'"),
    (
        {"requestTopics": [{"name": "r", "allow": ["*"], "messages_per_second_max": ["mails"]}]},
        "at '/requestTopics/0/messages_per_second_max/0'",
    ),
    (
        {"requestTopics": [{"name": "r", "allow": ["*"], "dialects": ["rabbit"]}]},
        "at '/requestTopics/0/dialects/0': value must be one of",
    ),
    ({"config": {"dispatch": {"pace": 3}}}, "at '/config/dispatch': additional properties 'pace' not allowed"),
    ({"config": {"dispatch": {"pace_ms": 3000}}}, "at '/config/dispatch/pace_ms': maximum"),
    ({"http": {"port": 8090}}, "http.port and http.probePort are the same"),
    ({"config": {"workers": 4}}, "additional properties 'workers' not allowed"),
    ({"config": {"data_dir": "/x"}}, "additional properties 'data_dir' not allowed"),
    ({"config": {"log_level": "loud"}}, "at '/config/log_level'"),
    ({"config": {"dispatch": {"size_bytes_max": "16 megabytes"}}}, "at '/config/dispatch/size_bytes_max'"),
    ({"persistence": {"size": "large"}}, "at '/persistence/size'"),
    ({"persistentVolumeClaimRetentionPolicy": {"whenScaled": "Keep"}}, "at '/persistentVolumeClaimRetentionPolicy"),
    ({"image": {"digest": "latest"}}, "at '/image/digest'"),
    ({"audit": {"enabled": True, "mode": "spark-submit"}}, "audit.master is required"),
    (
        {"audit": {"enabled": True}, "kafka": {"sasl": OAUTH}},
        "audit.mode=local does not support OAUTHBEARER",
    ),
    ({"audit": {"enabled": True, "windowHours": 26}}, "audit.windowHours leaves older requests unverified"),
    ({"audit": {"schedule": "daily"}}, "at '/audit/schedule'"),
    ({"metrics": {"prometheusRule": {"latenessSeconds": 0}}}, "at '/metrics/prometheusRule/latenessSeconds'"),
]


@pytest.mark.parametrize(("values", "said"), MISTAKES, ids=[json.dumps(values) for values, _ in MISTAKES])
def test_a_mistake_is_refused_by_name(helm: Helm, values: Values, said: str) -> None:
    with pytest.raises(ChartRefused) as refused:
        helm.render(merged(NEEDED, values))
    assert said in str(refused.value)


RATES = "mails=20|sms-*=0.5|*=1000|a=0|a=0.000|a=0.0009|a=0.001|a=00.0010|a=0.01|a=1000000|a=1000000.0|a=1000000.1"
RATES += "|a=1000001|a=999999.9|a=007|a=|=5|a|a b=5| a = 5 |a=1e3|a=-1|a=.5|a=5.|[ab]?=1|a/b=1|a=0.0|a=0.10"


@pytest.mark.parametrize("rate", RATES.split("|"))
def test_the_schema_accepts_exactly_the_rates_that_the_program_accepts(rate: str) -> None:
    pattern = request_topic_schema()["properties"]["messages_per_second_max"]["items"]["pattern"]
    try:
        RateRules.of((rate,))
        is_rate = True
    except ValueError:
        is_rate = False
    assert (re.search(pattern, rate) is not None) == is_rate


def test_the_properties_are_those_of_the_client_library() -> None:
    names = properties_schema()["properties"].keys()
    assert {"client.rack", "sasl.password.file", "ssl.key.password", "session.timeout.ms", "compression.type"} <= names
    assert not {"error_cb", "opaque", "acks", "bootstrap.servers", "client.rak"} & names
    for name in names:
        if not name.endswith(".file"):
            refuse("kafka.common", name, 2_000)


def test_without_the_two_required_values_helm_names_the_missing_one(helm: Helm) -> None:
    with pytest.raises(ChartRefused, match=r"kafka\.bootstrapServers is required"):
        helm.render({})
    with pytest.raises(ChartRefused, match=r"postdate\.requests needs `allow`"):
        helm.render({"kafka": NEEDED["kafka"]})


@pytest.mark.parametrize("table", ["common", "consumer", "producer", "admin"])
def test_a_secret_among_the_properties_is_refused(helm: Helm, table: str) -> None:
    for name in ("sasl.password", "ssl.key.password", "sasl.oauthbearer.client.secret", "ssl.key.pem"):
        with pytest.raises(ChartRefused, match=f"kafka.{table}: {name} is a secret"):
            helm.render(merged(NEEDED, {"kafka": {table: {name: "hunter2"}}}))
        helm.render(merged(NEEDED, {"kafka": {table: {f"{name}.file": "/a/file"}}}))


def test_the_readme_is_made_from_the_values() -> None:
    present = (CHART / "README.md").read_text(encoding="utf-8")
    assert present == readme(present, VALUES), "run `make chart`"
    root = CHART.parents[1]
    assert list(document_rules.link_complaints(root, "charts/postdate/README.md", present)) == []


def test_the_schema_has_the_options_of_the_program() -> None:
    assert schema(SCHEMA) == SCHEMA, "run `make chart`"


def test_every_option_of_the_program_can_be_set_or_is_the_charts_own() -> None:
    """`make chart` adds new options to the schema; this test checks that it omits none."""
    made = config_schema()["properties"]
    for leaf in leaves().values():
        if leaf.section in OWNED_SECTIONS or leaf.path in OWNED:
            continue
        table = made[leaf.section]["properties"] if leaf.section else made
        assert table[leaf.name]["description"] == leaf.option.doc
    assert {*OWNED} - {REQUEST_TOPICS} <= leaves().keys()


def test_every_default_is_in_the_schema_and_the_other_way_round() -> None:
    closed = json.loads(SCHEMA)
    values = yaml.safe_load(VALUES)

    def compare(properties: dict[str, Any], defaults: dict[str, Any], path: str) -> None:
        assert properties.keys() == defaults.keys(), path
        for name, below in properties.items():
            if "properties" in below and path != "/resources" and name not in ("resources", "updateStrategy"):
                assert below["additionalProperties"] is False, f"{path}/{name}"
                compare(below["properties"], defaults[name], f"{path}/{name}")

    del closed["properties"]["global"]  # the values that a parent chart passes to all charts
    config = closed["properties"].pop("config")
    assert values.pop("config").keys() <= config["properties"].keys()
    compare(closed["properties"], values, "")


def test_a_value_without_a_description_is_found() -> None:
    assert [value.path for value in described("# -- One.\na: 1\nb:\n  # -- Two.\n  c:\n    d: 2\n")] == ["a", "b.c"]
    with pytest.raises(ValueError, match=r"b\.c has no description"):
        list(described("# -- One.\na: 1\nb:\n  c: 2\n"))
    with pytest.raises(ValueError, match="b has no description"):
        list(described("# -- One.\na: 1\n\nb: 2\n"))
