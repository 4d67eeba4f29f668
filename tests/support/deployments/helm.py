"""Renders the chart with Helm in a child process: Helm is a Go library, and its runtime must not run in the test
process.

The child (`python -m support.deployments.helm`) responds to each request with one JSON object on a line. If Helm fails,
the response contains its message, and the client raises `ChartRefused`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from support.tidiness.chart_documents import CHART

RELEASE, NAMESPACE = "delays", "messaging"

#: Equal to SafeLoader, and faster if PyYAML was built with it.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

Values = Mapping[str, Any]
#: The minimum: the values that the chart requires.
NEEDED: Values = {
    "kafka": {"bootstrapServers": "kafka:9092"},
    "requestTopics": [{"name": "postdate.requests", "allow": ["orders.*"]}],
}


class ChartRefused(Exception):
    """Helm cannot render the chart, or the values violate the schema."""


class Helm:
    """The client of a Helm child process."""

    def __init__(self, child: subprocess.Popen[str]) -> None:
        self._child = child

    def render(self, values: Values, chart: Path = CHART) -> list[dict[str, Any]]:
        """Returns the objects of the release, hooks and tests included, in the order of their templates."""
        return [document for _, text in sorted(self.manifests(values, chart).items()) for document in documents(text)]

    def manifests(self, values: Values, chart: Path = CHART) -> dict[str, str]:
        """Returns the rendered templates by name, each a text of YAML documents."""
        rendered: dict[str, str] = self._ask("render", chart, values)
        return {name: text for name, text in rendered.items() if name.endswith(".yaml")}

    def notes(self, values: Values) -> str:
        """Returns the notes that Helm prints after an install."""
        return str(
            next(text for name, text in self._ask("render", CHART, values).items() if name.endswith("NOTES.txt"))
        )

    def lint(self, values: Values) -> list[str]:
        """Returns the complaints of `helm lint --strict`, without its recommendations."""
        report = self._ask("lint", CHART, values)
        info = 1
        return [*report["errors"], *(m["error"] for m in report["messages"] if m["severity"] > info)]

    def _ask(self, what: str, chart: Path, values: Values) -> Any:
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._child.stdin.write(json.dumps({"what": what, "chart": str(chart), "values": values}) + "\n")
        self._child.stdin.flush()
        line = self._child.stdout.readline()
        assert line, "Helm's process has ended"
        answer = json.loads(line)
        if "refused" in answer:
            raise ChartRefused(answer["refused"])
        return answer["result"]


def documents(manifest: str) -> list[dict[str, Any]]:
    """Returns the objects of a rendered template."""
    return [document for document in yaml.load_all(manifest, Loader=_LOADER) if document]


@contextmanager
def running_helm() -> Iterator[Helm]:
    """Yields a child process, which ends when the context exits."""
    command = [sys.executable, "-m", "support.deployments.helm"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    environment["GOGC"] = "400"  # otherwise Go collects its small heap many times in each call
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment) as child:
        try:
            yield Helm(child)
        finally:
            assert child.stdin is not None
            child.stdin.close()


def ci_values() -> dict[str, Values]:
    """Returns the values files of the chart's ci folder, by name."""
    files = sorted((CHART / "ci").glob("*-values.yaml"))
    return {path.name.removesuffix("-values.yaml"): yaml.safe_load(path.read_text(encoding="utf-8")) for path in files}


def merged(values: Values, further: Values) -> dict[str, Any]:
    """Returns `values` overridden by `further`, merged table by table like Helm's values files."""
    result = dict(values)
    for key, value in further.items():
        below = result.get(key)
        result[key] = merged(below, value) if isinstance(below, Mapping) and isinstance(value, Mapping) else value
    return result


def of_kind(objects: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    """Returns the objects of one kind."""
    return [each for each in objects if each["kind"] == kind]


def one(objects: list[dict[str, Any]], kind: str, name: str = RELEASE + "-postdate") -> dict[str, Any]:
    """Returns the only object of this kind and name."""
    (found,) = [each for each in of_kind(objects, kind) if each["metadata"]["name"] == name]
    return found


def pod_specs(objects: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Returns (kind, name) of the controller -> the specification of its pods, for every pod that the release
    starts."""
    found: dict[str, dict[str, Any]] = {}
    for each in objects:
        spec = each.get("spec", {})
        if each["kind"] == "CronJob":
            spec = spec["jobTemplate"]["spec"]
        if each["kind"] in ("StatefulSet", "Job", "CronJob"):
            spec = spec["template"]["spec"]
        if "containers" in spec:
            found[f"{each['kind']} {each['metadata']['name']}"] = spec
    return found


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    import helm_python

    try:
        if request["what"] == "lint":
            return {"result": helm_python.lint(request["chart"], request["values"], strict=True)}
        with helm_python.Chart.load(request["chart"]) as chart:
            return {"result": chart.render(request["values"], name=RELEASE, namespace=NAMESPACE, is_install=True)}
    except helm_python.HelmError as error:
        return {"refused": str(error)}


if __name__ == "__main__":
    for question in sys.stdin:
        sys.stdout.write(json.dumps(_answer(json.loads(question))) + "\n")
        sys.stdout.flush()
