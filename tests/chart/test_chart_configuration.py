"""Goal: the program accepts the file in the ConfigMap. The file has the settings of the values and no secret, and a
change of the file replaces the pods. Method: the program's loader (`config_load`) reads the rendered TOML, in which the
test replaces the paths of mounted secrets by existing files.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from postdate.kafka.settings import KafkaSettings
from postdate.sidecar.config.loader import Flags, load
from postdate.sidecar.config.settings import Config
from postdate.sidecar.config.values import _SECRET
from postdate.sidecar.http.access.access import Hosts
from support.deployments.helm import NEEDED, RELEASE, Helm, Values, ci_values, merged, of_kind, one, pod_specs
from support.tidiness.chart_documents import CHART

MOUNTS = Path("/etc/postdate")


def configuration(objects: list[dict[str, Any]], directory: Path) -> Config:
    """Returns the configuration that the program loads from the file, with secrets mounted below `directory`."""
    (file,) = [
        each["data"]["postdate.toml"]
        for each in of_kind(objects, "ConfigMap")
        if "postdate.toml" in each["data"] and each["metadata"]["labels"]["app.kubernetes.io/component"] == "sidecar"
    ]
    for secret in ("sasl/password", "api/token"):
        directory.joinpath(secret).parent.mkdir(parents=True, exist_ok=True)
        directory.joinpath(secret).write_text("hunter2\n")
    path = directory / "postdate.toml"
    path.write_text(file.replace(f"{MOUNTS}/", f"{directory}/"))
    return load(Flags(config_file=path), {"POSTDATE_GROUP_INSTANCE_ID": "messaging.delays-postdate-0"}).config


@pytest.mark.parametrize("name", ci_values())
def test_the_program_accepts_the_file(helm: Helm, tmp_path: Path, name: str) -> None:
    values = ci_values()[name]
    config = configuration(helm.render(values), tmp_path)
    assert config.kafka.bootstrap_servers == values["kafka"]["bootstrapServers"]
    assert list(config.request_topic_names) == [topic["name"] for topic in values["requestTopics"]]
    assert [list(topic.allow) for topic in config.request_topics] == [
        topic["allow"] for topic in values["requestTopics"]
    ]
    assert (config.workers, config.http.host, config.http.port) == (1, "0.0.0.0", 8080)  # noqa: S104 - inside a pod
    assert config.data_path == Path("/var/lib/postdate/data")
    kafka = config.kafka
    KafkaSettings(kafka.bootstrap_servers, kafka.common, kafka.consumer, kafka.producer, kafka.admin)


def test_the_defaults_are_those_of_the_program(helm: Helm, tmp_path: Path) -> None:
    config = configuration(helm.render(NEEDED), tmp_path)
    plain = Config()
    assert (config.group_id, config.log_level) == (plain.group_id, plain.log_level)
    assert (config.dispatch, config.index, config.topics) == (plain.dispatch, plain.index, plain.topics)
    assert config.request_topics[0].name == plain.request_topics[0].name


def test_numbers_durations_and_unusual_texts_arrive_unchanged(helm: Helm, tmp_path: Path) -> None:
    odd = 'a"b\\c<d>&é\t\u2028'
    topic = {
        "name": "r",
        "allow": ["*"],
        "horizon_ms": 34_560_000_000,
        "levels_ms": ["1s", 2000, "1h"],
        "pending_max": 9_007_199_254_740_993 - 1,
    }
    values: Values = {
        "requestTopics": [topic],
        "config": {"group_id": odd, "dispatch": {"size_bytes_max": "1MiB"}, "topics": {"retention_ms": "3d"}},
        "kafka": {"producer": {"linger.ms": 1.5, "compression.type": odd, "retries": 1_000_000_000}},
    }
    config = configuration(helm.render(merged(NEEDED, values)), tmp_path)
    assert config.group_id == odd
    assert config.kafka.producer == {"linger.ms": "1.5", "compression.type": odd, "retries": "1000000000"}
    assert config.request_topics[0].horizon_ms == 34_560_000_000
    assert config.request_topics[0].levels_ms == (1_000, 2_000, 3_600_000)
    assert config.request_topics[0].pending_max == 9_007_199_254_740_992
    assert (config.dispatch.size_bytes_max, config.topics.retention_ms) == (1024**2, 3 * 86_400_000)


def sasl(mechanism: str, **more: str) -> Values:
    return {"kafka": {"sasl": {"mechanism": mechanism, "existingSecret": "s", "username": "u", **more}}}


@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize("mechanism", ["", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"])
def test_each_login_mechanism_gets_its_properties(helm: Helm, tmp_path: Path, mechanism: str, tls: bool) -> None:
    values = merged(NEEDED, sasl(mechanism, tokenEndpointUrl="https://id.example.com/token") if mechanism else {})
    values = merged(values, {"kafka": {"tls": {"enabled": tls}}})
    common = configuration(helm.render(values), tmp_path).kafka.common
    protocol = f"{'SASL_' if mechanism else ''}{'SSL' if tls else 'PLAINTEXT'}"
    assert common.get("security.protocol", "PLAINTEXT") == protocol
    assert common.get("sasl.mechanism", "") == mechanism
    if mechanism == "OAUTHBEARER":
        assert common["sasl.oauthbearer.method"] == "oidc"
        assert (common["sasl.oauthbearer.client.id"], common["sasl.oauthbearer.client.secret"]) == ("u", "hunter2")
    elif mechanism:
        assert (common["sasl.username"], common["sasl.password"]) == ("u", "hunter2")


def test_every_file_that_the_configuration_names_is_mounted(helm: Helm) -> None:
    for name, values in ci_values().items():
        objects = helm.render(values)
        for where, spec in pod_specs(objects).items():
            config = one_configuration(objects)
            items = {volume["name"]: _files(volume) for volume in spec["volumes"]}
            for container in spec["containers"]:
                mounts = container.get("volumeMounts", [])
                if "config" not in {mount["name"] for mount in mounts}:
                    continue
                files = {f"{mount['mountPath']}/{file}" for mount in mounts for file in items.get(mount["name"], [])}
                named = {*re.findall(rf'"({MOUNTS}/[^"]+)"', config)}
                if not where.startswith("StatefulSet"):  # the program reads them only from there
                    named = {file for file in named if not file.startswith((f"{MOUNTS}/api/", f"{MOUNTS}/http-tls/"))}
                assert named <= files, f"{name}: {where}"


def _files(volume: dict[str, Any]) -> list[str]:
    return [item["path"] for item in volume.get("secret", {}).get("items", [])]


def one_configuration(objects: list[dict[str, Any]]) -> str:
    (stateful,) = of_kind(objects, "StatefulSet")
    return str(one(objects, "ConfigMap", stateful["metadata"]["name"])["data"]["postdate.toml"])


def test_a_user_name_in_a_secret_reaches_the_program_in_an_environment_variable(helm: Helm) -> None:
    values = merged(NEEDED, sasl("PLAIN", username="", usernameKey="user"))
    for spec in pod_specs(helm.render(values)).values():
        for container in (each for each in spec["containers"] if "env" in each):
            (named,) = [each for each in container["env"] if each["name"] == "POSTDATE_KAFKA_COMMON_SASL_USERNAME"]
            assert named["valueFrom"] == {"secretKeyRef": {"name": "s", "key": "user"}}


def test_no_secret_is_in_any_object_but_the_token_in_its_secret(helm: Helm) -> None:
    values = merged(ci_values()["production"], {"api": {"existingSecret": ""}})
    objects = helm.render(values)
    (secret,) = of_kind(objects, "Secret")
    assert secret["data"].keys() == {"token"}
    token = secret["data"]["token"]
    assert len(token) >= 64
    for each in objects:
        if each is not secret:
            assert token not in str(each)
            assert "password =" not in str(each)
    assert of_kind(helm.render(ci_values()["production"]), "Secret") == []
    again = of_kind(helm.render(values), "Secret")[0]["data"]["token"]
    assert again != token, "a token is made at random"


def test_the_chart_recognizes_secrets_by_the_same_words_as_the_program() -> None:
    template = (CHART / "templates/_configuration.tpl").read_text(encoding="utf-8")
    (pattern,) = re.findall(r'\$secret := "(.*)" -', template)
    assert pattern.replace("\\\\", "\\") == _SECRET.pattern


def checksum(objects: list[dict[str, Any]]) -> str:
    template = one(objects, "StatefulSet")["spec"]["template"]
    return str(template["metadata"]["annotations"]["checksum/config"])


def test_a_change_of_the_configuration_replaces_the_pods_and_nothing_else_does(helm: Helm) -> None:
    before = checksum(helm.render(NEEDED))
    changes: list[Values] = [
        {"config": {"dispatch": {"pace_ms": 4}}},
        {"kafka": {"consumer": {"session.timeout.ms": 20000}}},
        {"requestTopics": [{"name": "postdate.requests", "allow": ["orders.*", "bills.*"]}]},
        {"http": {"port": 9000}},
    ]
    for values in changes:
        assert checksum(helm.render(merged(NEEDED, values))) != before, values
    others: list[Values] = [{"replicaCount": 5}, {"podLabels": {"a": "b"}}, {"service": {"port": 80}}]
    for values in others:
        assert checksum(helm.render(merged(NEEDED, values))) == before, values


def test_the_port_accepts_the_names_of_its_service(helm: Helm, tmp_path: Path) -> None:
    values = merged(NEEDED, {"http": {"names": ["postdate.example.com"]}})
    objects = helm.render(values)
    hosts = Hosts(configuration(objects, tmp_path).http)
    (address,) = one(objects, "Pod", f"{RELEASE}-postdate-test")["spec"]["containers"][0]["command"][-1:]
    service = f"{RELEASE}-postdate.messaging"
    names = [urlsplit(address).netloc, f"{service}.svc:8080", f"{RELEASE}-postdate"]
    assert all(hosts.knows(name) for name in [*names, "postdate.example.com", "10.1.2.3:8080"])
    assert not hosts.knows(f"{RELEASE}-postdate.example.com")
    assert not hosts.knows(f"{service}.svc.cluster.local"), "the chart does not know the cluster's domain"


def test_with_a_certificate_the_program_speaks_tls_under_the_name_of_its_pod(helm: Helm, tmp_path: Path) -> None:
    objects = helm.render(merged(NEEDED, {"http": {"tls": {"secretName": "certificate"}}}))
    http = configuration(objects, tmp_path).http
    assert http.scheme == "https"
    mounted = tmp_path / "http-tls"
    files = (mounted / "tls.crt", mounted / "tls.key", mounted / "ca.crt")
    assert (http.tls_cert_file, http.tls_key_file, http.tls_ca_file) == files
    (container,) = one(objects, "StatefulSet")["spec"]["template"]["spec"]["containers"]
    env = {each["name"]: each.get("value") for each in container["env"]}
    headless = one(objects, "Service", f"{RELEASE}-postdate-headless")["metadata"]["name"]
    assert env["POSTDATE_HTTP_ADVERTISE"] == f"$(POD_NAME).{headless}.$(POD_NAMESPACE).svc"
    assert [*env].index("POD_NAME") < [*env].index("POSTDATE_HTTP_ADVERTISE"), "a variable refers to earlier ones only"
    without_ca = merged(NEEDED, {"http": {"tls": {"secretName": "certificate", "caKey": ""}}})
    assert configuration(helm.render(without_ca), tmp_path).http.tls_ca_file is None
