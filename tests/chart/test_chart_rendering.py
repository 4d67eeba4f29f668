"""Goal: with every values file in ci/, the chart renders objects that Kubernetes accepts, and pods that meet its
strictest standard. Method: Helm renders and lints; kubernetes-validate checks the objects against the schemas of the
oldest and the newest Kubernetes, with unknown fields forbidden. These schemas lack the kinds of operators, which
test_chart_monitoring.py and test_chart_strimzi.py check.
"""

from __future__ import annotations

import copy
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from support.deployments.helm import NEEDED, RELEASE, ChartRefused, Helm, ci_values, merged, of_kind, one, pod_specs
from support.tidiness.chart_documents import CHART

OLDEST = "1.27"
FOREIGN = {"ServiceMonitor", "PrometheusRule", "KafkaTopic", "KafkaUser"}


def test_the_oldest_version_is_the_one_that_the_chart_names() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    assert chart["kubeVersion"] == f">={OLDEST}.0-0"


@pytest.mark.parametrize("version", [OLDEST, kubernetes_validate.latest_version()])
def test_kubernetes_takes_every_object(rendered: list[dict[str, Any]], version: str) -> None:
    assert len(rendered) > 5
    for each in rendered:
        if each["kind"] not in FOREIGN:
            kubernetes_validate.validate(each, version, strict=True)


def test_the_validation_finds_an_unknown_field_and_a_wrong_type(helm: Helm) -> None:
    good = one(helm.render(NEEDED), "StatefulSet")
    for path, value in (("replcas", 1), ("replicas", "many")):
        bad = copy.deepcopy(good)
        bad["spec"][path] = value
        with pytest.raises(kubernetes_validate.ValidationError):
            kubernetes_validate.validate(bad, OLDEST, strict=True)


@pytest.mark.parametrize("name", ci_values())
def test_helm_lint_finds_nothing(helm: Helm, name: str) -> None:
    assert helm.lint(ci_values()[name]) == []


def test_no_two_objects_have_one_name_and_all_are_in_the_release(rendered: list[dict[str, Any]]) -> None:
    names = Counter((each["kind"], each["metadata"]["name"]) for each in rendered)
    assert [name for name, count in names.items() if count > 1] == []
    for each in rendered:
        assert each["metadata"]["labels"]["app.kubernetes.io/instance"] == RELEASE
        assert each["metadata"]["namespace"] == "messaging"


def test_a_long_release_name_leaves_names_that_fit(helm: Helm) -> None:
    for each in helm.render(merged(NEEDED, {"fullnameOverride": "n" * 80, "audit": {"enabled": True}})):
        assert len(each["metadata"]["name"]) <= 63
        # Kubernetes adds eleven characters to the name of a CronJob.
        assert len(each["metadata"]["name"]) <= 52 + 11 * (each["kind"] != "CronJob"), each["kind"]


def test_every_container_keeps_to_the_restricted_pod_standard(rendered: list[dict[str, Any]]) -> None:
    specs = pod_specs(rendered)
    assert f"StatefulSet {one_name(rendered)}" in specs
    for where, spec in specs.items():
        pod = spec["securityContext"]
        assert pod["runAsNonRoot"] is True, where
        assert pod["seccompProfile"] == {"type": "RuntimeDefault"}, where
        assert spec["automountServiceAccountToken"] is False, where
        assert spec["enableServiceLinks"] is False, where
        assert not {"hostNetwork", "hostPID", "hostIPC"} & spec.keys(), where
        assert all("hostPath" not in volume for volume in spec["volumes"]), where
        for container in spec["containers"]:
            context = container["securityContext"]
            assert context["allowPrivilegeEscalation"] is False, where
            assert context["readOnlyRootFilesystem"] is True, where
            assert context["capabilities"] == {"drop": ["ALL"]}, where
            assert container["resources"]["requests"].keys() == {"cpu", "memory"}, where
            assert "memory" in container["resources"]["limits"], where


def one_name(objects: list[dict[str, Any]]) -> str:
    (found,) = of_kind(objects, "StatefulSet")
    return str(found["metadata"]["name"])


def test_every_mount_has_its_volume_and_every_volume_its_mount(rendered: list[dict[str, Any]]) -> None:
    for where, spec in pod_specs(rendered).items():
        claims = {"data"} if where.startswith("StatefulSet") else set()
        volumes = {volume["name"] for volume in spec["volumes"]}
        mounted = {mount["name"] for each in spec["containers"] for mount in each.get("volumeMounts", [])}
        assert mounted - volumes <= claims, where
        assert volumes - mounted <= ({"config", "tmp"} | volumes if where.startswith("Pod") else set()), where


def test_probes_and_services_reach_the_ports_that_the_program_listens_on(helm: Helm) -> None:
    objects = helm.render(merged(NEEDED, {"http": {"port": 9000, "probePort": 9001}, "service": {"port": 80}}))
    (container,) = one(objects, "StatefulSet")["spec"]["template"]["spec"]["containers"]
    assert container["ports"] == [
        {"name": "http", "containerPort": 9000},
        {"name": "probes", "containerPort": 9001},
    ]
    probes = {kind: container[f"{kind}Probe"]["httpGet"] for kind in ("startup", "liveness", "readiness")}
    paths = {"startup": "/healthz", "liveness": "/healthz", "readiness": "/readyz"}
    assert probes == {kind: {"path": path, "port": "probes"} for kind, path in paths.items()}
    assert {"name": "POSTDATE_HTTP_PROBE_PORT", "value": "9001"} in container["env"]
    config = one(objects, "ConfigMap")["data"]["postdate.toml"]
    assert "\nport = 9000\n" in config
    assert "probe_port" not in config  # pods of an earlier version also read it, and refuse unknown settings
    ports = {each["metadata"]["name"]: each["spec"]["ports"][0] for each in of_kind(objects, "Service")}
    assert {name: (port["port"], port["targetPort"]) for name, port in ports.items()} == {
        f"{RELEASE}-postdate": (80, "http"),
        f"{RELEASE}-postdate-headless": (9000, "http"),
    }


def test_each_pod_is_one_worker_and_a_static_member_with_its_name(helm: Helm) -> None:
    objects = helm.render(NEEDED)
    (container,) = one(objects, "StatefulSet")["spec"]["template"]["spec"]["containers"]
    named = {each["name"]: each.get("value", each.get("valueFrom")) for each in container["env"]}
    assert named["POSTDATE_GROUP_INSTANCE_ID"] == "$(POD_NAMESPACE).$(POD_NAME)"
    assert named["POD_NAME"] == {"fieldRef": {"fieldPath": "metadata.name"}}
    order = list(named)
    assert order.index("POD_NAME") < order.index("POSTDATE_INSTANCE"), "a variable refers to earlier ones only"
    assert "workers = 1" in one(objects, "ConfigMap")["data"]["postdate.toml"]


def test_topics_are_made_before_the_pods_start_by_objects_that_need_no_others(helm: Helm) -> None:
    objects = helm.render(NEEDED)
    name = f"{RELEASE}-postdate-topics"
    hooks = [one(objects, "ConfigMap", name), one(objects, "Job", name)]
    weights = [int(each["metadata"]["annotations"]["helm.sh/hook-weight"]) for each in hooks]
    assert all(each["metadata"]["annotations"]["helm.sh/hook"] == "pre-install,pre-upgrade" for each in hooks)
    assert weights == sorted(weights)
    assert weights[0] < weights[1]
    spec = hooks[1]["spec"]["template"]["spec"]
    assert "serviceAccountName" not in spec
    named = [volume["configMap"]["name"] for volume in spec["volumes"] if "configMap" in volume]
    assert named == [name]
    assert hooks[0]["data"] == one(objects, "ConfigMap")["data"]


def test_helm_test_delays_a_message_and_waits_for_it(helm: Helm) -> None:
    values = merged(NEEDED, {"tests": {"targetTopic": "orders.smoke"}})
    spec = one(helm.render(values), "Pod", f"{RELEASE}-postdate-test")["spec"]
    ready, delivery = spec["containers"]
    assert ready["command"][-1] == f"http://{RELEASE}-postdate.messaging:8080/readyz"
    assert delivery["args"][0] == "send"
    assert {"--wait-delivery", "orders.smoke", "postdate.requests"} <= {*delivery["args"]}
    assert len(one(helm.render(NEEDED), "Pod", f"{RELEASE}-postdate-test")["spec"]["containers"]) == 1
    assert "tests.targetTopic" in helm.notes(NEEDED)
    assert "tests.targetTopic" not in helm.notes(values)


def test_the_arguments_of_the_audit_survive_the_shell(helm: Helm) -> None:
    odd = 'it\'s $HOME `x` \\ "y"'
    audit = {"enabled": True, "strict": False, "windowHours": 26, "extraArgs": ["--slack", odd]}
    values = merged(NEEDED, {"audit": audit})
    spec = pod_specs(helm.render(values))[f"CronJob {RELEASE}-postdate-audit"]
    script = spec["containers"][0]["args"][0]
    assert re.search(r'--from "\$\(\( \(\$\(date \+%s\) - 93600\) \* 1000 \)\)"', script)
    words = run_shell(script)
    assert (words[-3:], "--strict" in words) == ([odd, "--output", "json"], False)


@pytest.mark.parametrize("mode", ["local", "spark-submit"])
def test_the_audit_is_strict_by_default_and_has_no_window(helm: Helm, mode: str) -> None:
    audit = {"enabled": True, "mode": mode, "master": "spark://s:7077"}
    values = merged(NEEDED, {"audit": audit, "networkPolicy": {"allowExternalEgress": True}})
    spec = pod_specs(helm.render(values))[f"CronJob {RELEASE}-postdate-audit"]
    script = spec["containers"][0]["args"][0]
    assert re.search(r"^ +--strict \\$", script, re.MULTILINE)
    assert "--from" not in script


def run_shell(script: str) -> list[str]:
    """Runs the script in a shell, with a fake `postdate` that prints its arguments. Returns these arguments."""
    with tempfile.TemporaryDirectory() as directory:
        program = Path(directory, "postdate")
        program.write_text(f"#!{sys.executable}\nimport sys\nprint('\\0'.join(sys.argv[1:]))\n")
        program.chmod(0o755)
        done = subprocess.run(
            ["sh", "-c", script], capture_output=True, text=True, check=True, env={"PATH": f"{directory}:/usr/bin:/bin"}
        )
    return done.stdout.rstrip("\n").split("\0")


def selects(selector: dict[str, Any], labels: dict[str, str]) -> bool:
    """True if a pod selector matches a pod with these labels."""
    for rule in selector.get("matchExpressions", []):
        assert rule["operator"] == "NotIn", "the one that the chart uses"
        if labels.get(rule["key"]) in rule["values"]:
            return False
    return bool(selector.get("matchLabels", {}).items() <= labels.items())


def policies_of(objects: list[dict[str, Any]], labels: dict[str, str]) -> list[dict[str, Any]]:
    """Returns the network policies of a pod. Kubernetes permits each connection that one of them allows."""
    policies = of_kind(objects, "NetworkPolicy")
    return [each["spec"] for each in policies if selects(each["spec"]["podSelector"], labels)]


def egress_of(objects: list[dict[str, Any]], labels: dict[str, str]) -> list[dict[str, Any]]:
    rules: list[dict[str, Any]] = []
    for spec in policies_of(objects, labels):
        rules += [rule for rule in spec["egress"] if rule not in rules]
    return rules


WITH_JOBS = merged(NEEDED, {"kafka": {"bootstrapServers": "a:9092, b:9092,c:9094"}, "audit": {"enabled": True}})


def test_by_default_every_pod_reaches_only_names_sidecars_and_brokers(helm: Helm) -> None:
    objects = helm.render(WITH_JOBS)
    pods = pod_labels(objects)
    assert len(pods) == 4, "sidecars, topics, audit, test"
    sidecar = pods[f"StatefulSet {RELEASE}-postdate"]
    for labels in pods.values():
        names, peers, brokers = egress_of(objects, labels)
        assert {port["port"] for port in names["ports"]} == {53}
        assert peers["ports"] == [{"port": "http"}]
        assert [name for name, other in pods.items() if selects(peers["to"][0]["podSelector"], other)] == [
            f"StatefulSet {RELEASE}-postdate"
        ]
        assert [port["port"] for port in brokers["ports"]] == [9092, 9094]
        assert all(spec["policyTypes"] == ["Ingress", "Egress"] for spec in policies_of(objects, labels))
        ingress = [rule for spec in policies_of(objects, labels) for rule in spec["ingress"]]
        if labels != sidecar:
            assert ingress == []
            continue
        ((release, monitoring),) = [rule["from"] for rule in ingress]
        assert [rule["ports"] for rule in ingress] == [[{"port": "http"}]]
        assert all(selects(release["podSelector"], other) for other in pods.values())
        assert monitoring == {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}


def test_every_pod_of_an_example_with_policies_has_a_policy(rendered: list[dict[str, Any]]) -> None:
    for name, labels in pod_labels(rendered).items():
        assert bool(policies_of(rendered, labels)) == bool(of_kind(rendered, "NetworkPolicy")), name
    for policy in of_kind(rendered, "NetworkPolicy"):
        assert policy["spec"]["policyTypes"] == ["Ingress", "Egress"]
        assert {} not in policy["spec"]["egress"], "a rule without limits"


def test_the_policy_of_the_topics_exists_before_their_job(helm: Helm) -> None:
    objects, name = helm.render(WITH_JOBS), f"{RELEASE}-postdate-topics"
    policy, job = (one(objects, kind, name)["metadata"]["annotations"] for kind in ("NetworkPolicy", "Job"))
    assert policy["helm.sh/hook"] == job["helm.sh/hook"]
    assert int(policy["helm.sh/hook-weight"]) < int(job["helm.sh/hook-weight"])


def test_an_audit_on_a_cluster_requires_a_policy_for_the_way_there(helm: Helm) -> None:
    audit = {"audit": {"mode": "spark-submit", "master": "spark://s:7077"}}
    with pytest.raises(ChartRefused, match=r"networkPolicy\.auditEgress is required with audit\.mode=spark-submit"):
        helm.render(merged(WITH_JOBS, audit))
    helm.render(merged(merged(WITH_JOBS, audit), {"networkPolicy": {"allowExternalEgress": True}}))
    to, source = [{"ports": [{"port": 7077}]}], [{"ports": [{"port": 7078}]}]
    rules = {"networkPolicy": {"auditEgress": to, "auditIngress": source}}
    objects = helm.render(merged(merged(WITH_JOBS, audit), rules))
    for name, labels in pod_labels(objects).items():
        is_audit = name.startswith("CronJob")
        assert (to[0] in egress_of(objects, labels)) == is_audit
        assert any(source == spec["ingress"] for spec in policies_of(objects, labels)) == is_audit


def pod_labels(objects: list[dict[str, Any]]) -> dict[str, dict[str, str]]:
    """Returns the labels of every pod that the release starts, by kind and name of its controller."""
    found: dict[str, dict[str, str]] = {}
    for name in pod_specs(objects):
        each = one(objects, *name.split())
        spec = each["spec"]["jobTemplate"]["spec"] if each["kind"] == "CronJob" else each["spec"]
        found[name] = spec.get("template", each)["metadata"]["labels"]
    return found


@pytest.mark.parametrize(
    ("url", "port"),
    [("https://id.example.com/t", 443), ("http://id/t", 80), ("https://[::1]/t", 443), ("https://id:8443/t", 8443)],
)
def test_the_policy_lets_pods_reach_the_token_endpoint(helm: Helm, url: str, port: int) -> None:
    values = ci_values()["oauth"]
    spec = one(helm.render(merged(values, {"kafka": {"sasl": {"tokenEndpointUrl": url}}})), "NetworkPolicy")["spec"]
    assert spec["egress"][-1] == {"ports": [{"port": port}]}


def test_the_production_example_speaks_tls_to_the_brokers_and_on_its_port(helm: Helm) -> None:
    objects = helm.render(ci_values()["production"])
    config = one(objects, "ConfigMap")["data"]["postdate.toml"]
    assert '"SASL_SSL"' in config
    assert 'tls_cert_file = "/etc/postdate/http-tls/tls.crt"' in config
    (endpoint,) = one(objects, "ServiceMonitor")["spec"]["endpoints"]
    ca = {"secret": {"name": "postdate-http", "key": "ca.crt"}}
    assert endpoint["scheme"] == "https"
    assert endpoint["tlsConfig"] == {"serverName": f"{RELEASE}-postdate.messaging.svc", "ca": ca}


def test_without_a_certificate_scrapes_are_plain(helm: Helm) -> None:
    objects = helm.render(merged(NEEDED, {"metrics": {"serviceMonitor": {"enabled": True}}}))
    (endpoint,) = one(objects, "ServiceMonitor")["spec"]["endpoints"]
    assert not {"scheme", "tlsConfig"} & endpoint.keys()
    assert "tls_" not in one(objects, "ConfigMap")["data"]["postdate.toml"]


@pytest.mark.parametrize("ca_key", ["ca.crt", ""])
def test_helm_test_uses_tls_and_gets_no_private_key(helm: Helm, ca_key: str) -> None:
    values = merged(NEEDED, {"http": {"tls": {"secretName": "certificate", "caKey": ca_key}}})
    spec = one(helm.render(values), "Pod", f"{RELEASE}-postdate-test")["spec"]
    url, *ca = spec["containers"][0]["command"][3:]
    assert url == f"https://{RELEASE}-postdate.messaging:8080/readyz"
    secrets = [volume["secret"] for volume in spec["volumes"] if "secret" in volume]
    assert [item["key"] for secret in secrets for item in secret["items"]] == ([ca_key] if ca_key else [])
    assert ca == (["/etc/postdate/http-ca/ca.crt"] if ca_key else [])


def test_disabled_parts_are_absent(helm: Helm) -> None:
    off = {
        "topics": {"create": False},
        "tests": {"enabled": False},
        "pdb": {"create": False},
        "networkPolicy": {"enabled": False},
        "serviceAccount": {"create": False},
        "api": {"enabled": False},
        "persistence": {"enabled": False},
    }
    objects = helm.render(merged(NEEDED, off))
    assert Counter(each["kind"] for each in objects) == {"ConfigMap": 1, "StatefulSet": 1, "Service": 2}
    assert "volumeClaimTemplates" not in one(objects, "StatefulSet")["spec"]
    assert "token_file" not in one(objects, "ConfigMap")["data"]["postdate.toml"]
    with pytest.raises(ChartRefused, match="additional properties 'enable' not allowed"):
        helm.render(merged(NEEDED, {"audit": {"enable": True}}))
