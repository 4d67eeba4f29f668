"""Goal: every value of values.yaml reaches the rendered objects, and the test finds a template that has a constant in
place of a value. Method: the test changes each value in turn, in a release with all optional parts: it raises a number
by one, toggles a switch, replaces a text with another that the schema allows, and adds an entry to a list or an open
table. A changed field of the rendered objects must contain the new value; for a switch, any field must change. The same
check then runs on charts in which constants replace some values.
"""

from __future__ import annotations

import functools
import json
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from support.deployments.helm import NEEDED, Helm, Values, documents, merged
from support.tidiness.chart_documents import CHART

Place = tuple[str, ...]

#: Values that enable every part that reads a value. The audit is not strict, since a strict audit permits no window.
#: The token is set, since a generated token is random.
ALL_PARTS: Values = {
    **NEEDED,
    "kafka": {
        "bootstrapServers": "kafka:9092",
        "tls": {"enabled": True, "ca": {"existingSecret": "ca"}, "client": {"existingSecret": "client"}},
        "sasl": {"mechanism": "SCRAM-SHA-512", "existingSecret": "sasl", "usernameKey": "user"},
    },
    "http": {"tls": {"secretName": "certificate"}},
    "api": {"existingSecret": "token"},
    "networkPolicy": {"auditEgress": [{"ports": [{"port": 7077}]}]},
    "metrics": {name: {"enabled": True} for name in ("serviceMonitor", "prometheusRule", "dashboard")},
    "audit": {"enabled": True, "strict": False, "master": "local[2]", "javaProperties": {"existingSecret": "java"}},
    "tests": {"targetTopic": "orders.smoke"},
    "topics": {"create": True},
    "strimzi": {"cluster": "events", "user": {"create": True}},
}
_OAUTH: Values = {"kafka": {"sasl": {"mechanism": "OAUTHBEARER", "tokenEndpointUrl": "https://id"}}}
#: The other values that must change with a value. Without them it is not read, or contradicts another value.
FURTHER: Mapping[str, Values] = {
    "kafka.sasl.tokenEndpointUrl": merged(_OAUTH, {"audit": {"mode": "spark-submit"}}),
    "kafka.tls.enabled": {"kafka": {"tls": {"ca": {"existingSecret": ""}, "client": {"existingSecret": ""}}}},
    "strimzi.topics.create": {"topics": {"create": False}},
    "persistence.emptyDirSizeLimit": {"persistence": {"enabled": False}},
}
#: The rendered form of changed values that the chart converts. For example, it converts hours to seconds.
SHOWN: Mapping[str, str] = {
    "audit.windowHours": r"\b3600\b",
    "podAntiAffinityPreset": "requiredDuringScheduling",
}
#: A text for each pattern of the schema.
SAMPLES: Mapping[str, str] = {
    "^(sha256:[0-9a-f]{64})?$": f"sha256:{'7' * 64}",
    "^$|^ *[^:, ]+:[0-9]{1,5}( *, *[^:, ]+:[0-9]{1,5})* *$": "changed:9999",
    "^(https?://.+)?$": "https://changed.example.com",
    "^[0-9.]+([KMGTP]i?)?$": "77Gi",
    "^([0-9]+%?)?$": "77%",
    r"^(@[a-z]+|\S+( +\S+){4})$": "7 7 7 7 7",
}
_TEXT = "changed-value"
#: Tables whose keys are names of the client library.
_PROPERTIES = frozenset({"kafka.common", "kafka.consumer", "kafka.producer", "kafka.admin"})


@functools.cache
def defaults() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    return found


@functools.cache
def schema() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    return found


def leaves(tree: Mapping[str, Any], path: Place = ()) -> Iterator[tuple[Place, Any]]:
    """Yields each value below `tree` with its path; an empty table is a value."""
    for key, value in tree.items():
        if isinstance(value, dict) and value:
            yield from leaves(value, (*path, key))
        else:
            yield (*path, key), value


def schema_of(path: Place) -> dict[str, Any]:
    """Returns the schema of a value; an empty one below an open table."""
    node = schema()
    for key in path:
        node = node.get("properties", {}).get(key) or node.get("additionalProperties") or {}
        node = schema()["definitions"]["librdkafka"] if node.get("$ref", "").endswith("librdkafka") else node
    return node


def other_text(rule: Mapping[str, Any], present: object) -> str:
    """Returns a text that the schema allows, and that is not present yet."""
    if "enum" in rule:
        return str(next(each for each in rule["enum"] if each not in (present, "")))
    return SAMPLES[rule["pattern"]] if "pattern" in rule else _TEXT


def changed(path: Place, present: Any) -> tuple[Any, str]:
    """Returns another value, and the expression that must match its rendered form: "" for a switch."""
    name, rule = ".".join(path), schema_of(path)
    if isinstance(present, bool):
        return not present, ""
    if isinstance(present, int | float):
        return present + 1, SHOWN.get(name, rf"\b{present + 1}s?\b")
    if isinstance(present, str):
        text = other_text(rule, present)
        return text, SHOWN.get(name, re.escape(text))
    if isinstance(present, dict):
        return {"client.rack" if name in _PROPERTIES else _TEXT: _TEXT}, _TEXT
    return _list_of(rule.get("items", {}), present)


def _list_of(rule: Mapping[str, Any], present: list[Any]) -> tuple[list[Any], str]:
    if rule.get("type") == "integer":
        return [7_777], "7777"
    if rule.get("type") == "object":
        return [{"name": _TEXT, **({"allow": ["*"]} if "name" in rule.get("required", []) else {})}], _TEXT
    text = other_text(rule, present[0] if present else None)
    return [text], re.escape(text)


def nested(path: Place, value: Any) -> dict[str, Any]:
    for key in reversed(path):
        value = {key: value}
    return dict(value)


def rendered_fields(helm: Helm, values: Values, chart: Path) -> set[tuple[str, str]]:
    """Returns the path, beginning with the template's name, and the text of each field of a rendered release."""
    return {field for name, text in helm.manifests(values, chart).items() for field in _fields_of(name, text)}


@functools.lru_cache(maxsize=500)
def _fields_of(name: str, manifest: str) -> tuple[tuple[str, str], ...]:
    """Returns the fields of one rendered template. Most are in the cache, since a value changes only a few."""
    return tuple(fields(documents(manifest), name))


def fields(node: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Yields the path and the text of each field of rendered objects."""
    if isinstance(node, dict | list):
        for key, value in node.items() if isinstance(node, dict) else enumerate(node):
            yield from fields(value, f"{path}/{key}")
    else:
        yield path, str(node)


def ignored_values(helm: Helm, chart: Path = CHART) -> list[str]:
    """Returns the paths of values whose change has no effect, or not the expected one."""
    found = []
    rendered: dict[str, set[tuple[str, str]]] = {}
    for path, _ in leaves(defaults()):
        name = ".".join(path)
        release = merged(ALL_PARTS, FURTHER.get(name, {}))
        same = name if name in FURTHER else ""  # most values are changed in the same release
        if same not in rendered:
            rendered[same] = rendered_fields(helm, release, chart)
        before = rendered[same]
        present: Any = merged(defaults(), release)
        for key in path:
            present = present[key]
        value, shown = changed(path, present)
        after = rendered_fields(helm, merged(release, nested(path, value)), chart)
        if before == after or (shown and not any(re.search(shown, "=".join(field)) for field in after - before)):
            found.append(name)
    return found


def test_every_value_reaches_the_rendering(helm: Helm) -> None:
    assert ignored_values(helm) == []


def test_this_module_covers_every_value() -> None:
    """All defaults have types that `changed` knows, and the tables name only existing values."""
    paths = {".".join(path): value for path, value in leaves(defaults())}
    assert {type(value) for value in paths.values()} == {bool, int, str, list, dict}
    assert {*FURTHER, *SHOWN} <= paths.keys()


#: A template, an expression of a value in it, the constant that replaces it, and the values that are then ignored.
CONSTANTS = [
    (
        "statefulset.yaml",
        "{{ int .Values.terminationGracePeriodSeconds }}",
        "30",
        ["terminationGracePeriodSeconds"],
    ),
    ("statefulset.yaml", "{{ int .Values.minReadySeconds }}", "5", ["minReadySeconds"]),
    (
        "_pod.tpl",
        "{{ int .probe.failureThreshold }}",
        "3",
        [f"{probe}Probe.failureThreshold" for probe in ("startup", "liveness", "readiness")],
    ),
    ("statefulset.yaml", "{{ .Values.podManagementPolicy }}", "Parallel", ["podManagementPolicy"]),
    ("statefulset.yaml", "{{ .certificateKey }}", "tls.crt", ["http.tls.certificateKey"]),
    (
        "networkpolicy.yaml",
        "{{- if $policy.allowExternalEgress -}}",
        "{{- if false -}}",
        ["networkPolicy.allowExternalEgress"],
    ),
    (
        "statefulset.yaml",
        "{{- toYaml .Values.persistence.accessModes | nindent 10 }}",
        "- ReadWriteOnce",
        ["persistence.accessModes"],
    ),
    (
        "servicemonitor.yaml",
        "{{- toYaml $monitor.tlsConfig | nindent 8 }}",
        "{}",
        ["metrics.serviceMonitor.tlsConfig"],
    ),
]


def test_a_constant_in_place_of_a_value_is_found(helm: Helm, tmp_path: Path) -> None:
    """All constants are in one chart, since each run over all values takes seconds."""
    chart = tmp_path / "postdate"
    shutil.copytree(CHART, chart)
    for template, expression, constant, _ in CONSTANTS:
        path = chart / "templates" / template
        text = path.read_text(encoding="utf-8")
        assert text.count(expression) == 1
        path.write_text(text.replace(expression, constant), encoding="utf-8")
    assert sorted(ignored_values(helm, chart)) == sorted(name for *_, ignored in CONSTANTS for name in ignored)
