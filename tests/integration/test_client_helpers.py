"""Goal: the helpers of `clients/` for Java, Go and JavaScript build the same requests as the Python client, read the
same records and refuse the same input. Their requests have the documented effect on a real broker.

Method: one file has all cases with the results of the Python client. A small program in each language prints its own
results, which must equal those of the file. The same program then schedules three messages on a topic of a real
sidecar, cancels one by its id and one by its origin, returns the third once, and creates a schedule with two
occurrences. It prints the deliveries and the two verdicts that it reads.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.brokers.broker import RunningBroker
from support.clients.cases import FILE, document
from support.clients.helper_programs import LANGUAGES, ClientPrograms
from support.deployments.sidecar_deployment import SidecarDeployment, new_deployment

PARTITIONS = 4
CASES: list[dict[str, Any]] = json.loads(FILE.read_text(encoding="utf-8"))["cases"]


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> ClientPrograms:
    return ClientPrograms(tmp_path_factory.mktemp("clients"))


@pytest.fixture(scope="module")
def served(broker: RunningBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SidecarDeployment]:
    with new_deployment(broker.bootstrap_servers, tmp_path_factory.mktemp("served")) as deployment:
        for _ in LANGUAGES:
            deployment.new_requests(PARTITIONS)
        sidecar = deployment.new_sidecar()
        sidecar.format_version = 3
        sidecar.start()
        sidecar.wait_for_shards(PARTITIONS * len(LANGUAGES))
        yield deployment


def test_the_file_has_the_results_of_the_python_client() -> None:
    remedy = "run PYTHONPATH=tests python -m support.clients.cases"
    assert FILE.read_text(encoding="utf-8") == document(), remedy


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_helper_makes_the_same_of_each_case_as_the_python_client(programs: ClientPrograms, language: str) -> None:
    stated = [case for case in CASES if language in case.get("only", LANGUAGES)]
    results = [json.loads(line) for line in programs.conform(language)]
    assert len(results) == len(stated) > 100
    for case, result in zip(stated, results, strict=True):
        expected = {name: value for name, value in case.items() if name not in ("name", "call", "only", "input")}
        assert (case["name"], result) == (case["name"], expected)


@pytest.mark.parametrize(("language", "place"), [(language, place) for place, language in enumerate(LANGUAGES)])
def test_a_helper_does_on_a_broker_what_it_says(
    programs: ClientPrograms, served: SidecarDeployment, language: str, place: int
) -> None:
    target = served.new_target()

    lines = programs.live(language, served.bootstrap, served.requests[place], PARTITIONS, target)
    (by_origin,) = [line for line in lines if line.split()[1] in ("null", "<nil>")]
    lines.remove(by_origin)
    assert by_origin.split()[0] == "cancelled"
    assert sorted(lines) == [
        f"cancelled {language}-1",
        f'kept {language}-2 {language} 0 "" 0 false',
        f'kept {language}-2 {language} 1 "busy" 0 false',
        f'tick {language}-3 {language} 0 "" 1 true',
        f'tick {language}-3 {language} 0 "" 2 false',
    ]


def test_every_file_of_the_helpers_is_described() -> None:
    text = (FILE.parent / "README.md").read_text(encoding="utf-8")
    present = [path for path in FILE.parent.rglob("*") if path.is_file() and path.name != "README.md"]
    assert [Path(path).name for path in present if path.name not in text] == []
