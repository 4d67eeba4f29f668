"""Goal: the whole repository follows the house rules.

Method: each rule is a pure function of a file's place and text. It runs on every file, and on a text with a violation,
which shows that the rule finds one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.repository import ROOT
from support.tidiness import code_rules

CODE = sorted(path for root in ("sidecar", "wheel", "connectors") for path in ROOT.glob(f"{root}/postdate/**/*.py"))
TESTS = sorted(ROOT.glob("tests/**/*.py"))
BENCHMARKS = sorted(ROOT.glob("benchmarks/**/*.py"))
DOCS = [
    *(ROOT / f"{name}.md" for name in ("README", "CHANGELOG", "CONTRIBUTING", "SECURITY")),
    *sorted(ROOT.glob("docs/**/*.md")),
    *sorted(ROOT.glob("benchmarks/*.md")),
]
OTHERS = [ROOT / name for name in ("Makefile", "mkdocs.yml", "pyproject.toml", ".ci/run")]
OTHERS += [ROOT / "requirements-dev.lock", ROOT / "requirements-docs.lock"]
OTHERS += sorted(ROOT.glob("scripts/*"))

Rule = Callable[[str, str], Iterator[str]]


def complaints(rule: Rule, paths: list[Path]) -> list[str]:
    assert paths
    found: list[str] = []
    for path in paths:
        found += rule(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8"))
    return found


@pytest.mark.parametrize(
    ("rule", "paths"),
    [
        pytest.param(code_rules.import_complaints, CODE, id="imports"),
        pytest.param(code_rules.judge_complaints, TESTS, id="judges"),
        pytest.param(code_rules.size_complaints, CODE + TESTS + BENCHMARKS, id="sizes"),
        pytest.param(code_rules.argument_complaints, CODE, id="arguments"),
        pytest.param(code_rules.name_complaints, CODE + TESTS + BENCHMARKS, id="names"),
        pytest.param(code_rules.unfinished_complaints, CODE + TESTS + BENCHMARKS + DOCS + OTHERS, id="unfinished"),
        pytest.param(code_rules.except_complaints, CODE + TESTS + BENCHMARKS, id="excepts"),
        pytest.param(code_rules.machine_complaints, CODE + TESTS + BENCHMARKS + DOCS + OTHERS, id="machine"),
    ],
)
def test_the_repository_follows_the_rule(rule: Rule, paths: list[Path]) -> None:
    assert complaints(rule, paths) == []


def test_each_class_name_has_one_meaning() -> None:
    texts = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in CODE + TESTS}
    assert code_rules.class_complaints(texts) == []
    two = {"a.py": "class Step: ...\nclass _Own: ...", "b.py": "class Step: ...\nclass _Own: ..."}
    assert code_rules.class_complaints(two) == ["Step has 2 meanings: a.py:1, b.py:1"]


def test_there_is_no_cycle_of_imports() -> None:
    texts = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in CODE}
    assert code_rules.import_cycle(texts) == []
    wire = "connectors/postdate/wire"
    texts |= {f"{wire}/a.py": "from postdate.wire import b", f"{wire}/b.py": "if TYPE_CHECKING:\n    from .a import A"}
    assert set(code_rules.import_cycle(texts)) == {"postdate.wire.a", "postdate.wire.b"}


WHEEL = "wheel/postdate/wheel/timer_log/x.py"
WIRE = "connectors/postdate/wire/values/x.py"
ADMIN = "connectors/postdate/kafka/admin/x.py"
CLIENT = "connectors/postdate/client/x.py"
KAFKA = "connectors/postdate/kafka/x.py"
SIDECAR = "sidecar/postdate/sidecar/x.py"
DUE = "sidecar/postdate/sidecar/dispatch/due/x.py"
INDEX, LIMITS = "sidecar/postdate/sidecar/index/x.py", "sidecar/postdate/sidecar/limits.py"
SPARK = "connectors/postdate/spark"


@pytest.mark.parametrize(
    ("rule", "place", "text"),
    [
        pytest.param(
            code_rules.import_complaints, "wheel/postdate/wheel/x.py", "from postdate.sidecar import y", id="arrow"
        ),
        pytest.param(
            code_rules.import_complaints, WHEEL, "from postdate.wheel.timing_wheel.rings import Rings", id="wheel-up"
        ),
        pytest.param(code_rules.import_complaints, WHEEL, "from postdate.wheel import index", id="wheel-by-parent"),
        pytest.param(code_rules.import_complaints, WIRE, "from postdate.wire.requests.rules import x", id="wire-up"),
        pytest.param(code_rules.import_complaints, ADMIN, "from postdate.kafka import client", id="kafka-up"),
        pytest.param(code_rules.import_complaints, KAFKA, "from ..wire import topics", id="relative-arrow"),
        pytest.param(code_rules.import_complaints, KAFKA, "from postdate import wire", id="arrow-by-parent"),
        pytest.param(code_rules.import_complaints, CLIENT, "from postdate.kafka import interface", id="client-arrow"),
        pytest.param(code_rules.import_complaints, SIDECAR, "import postdate.spark", id="spark-at-load"),
        pytest.param(
            code_rules.import_complaints, INDEX, "from postdate.sidecar.takeover import takeover", id="upwards"
        ),
        pytest.param(
            code_rules.import_complaints, LIMITS, "from postdate.sidecar.config import settings", id="vocabulary"
        ),
        pytest.param(code_rules.import_complaints, DUE, "from postdate.sidecar.dispatch.batch import B", id="inner-up"),
        pytest.param(code_rules.import_complaints, DUE, "from postdate.sidecar.shard.inbox import I", id="inner-out"),
        pytest.param(
            code_rules.import_complaints,
            "sidecar/postdate/cli/x.py",
            "def f():\n    from postdate.spark import audit",
            id="spark-command",
        ),
        pytest.param(
            code_rules.import_complaints,
            f"{SPARK}/rules/x.py",
            "from postdate.spark.judging import judge",
            id="spark-up",
        ),
        pytest.param(
            code_rules.import_complaints,
            f"{SPARK}/rules/schedules/x.py",
            "from postdate.spark.rules.verdicts import Problem",
            id="spark-inner-up",
        ),
        pytest.param(
            code_rules.import_complaints,
            f"{SPARK}/state/x.py",
            "from postdate.spark import audit",
            id="spark-by-parent",
        ),
        pytest.param(
            code_rules.import_complaints,
            f"{SPARK}/audit/x.py",
            "from postdate.spark.bulk import job",
            id="spark-sideways",
        ),
        pytest.param(
            code_rules.import_complaints,
            f"{SPARK}/job/x.py",
            "from postdate.spark import submitted",
            id="spark-program",
        ),
        pytest.param(
            code_rules.import_complaints,
            f"{SPARK}/limits.py",
            "from postdate.spark.columns import times",
            id="spark-limits",
        ),
        pytest.param(code_rules.import_complaints, SIDECAR, "import confluent_kafka.admin", id="kafka-library"),
        pytest.param(code_rules.import_complaints, SIDECAR, "def f():\n    import pyspark", id="spark-library"),
        pytest.param(code_rules.import_complaints, KAFKA, "from rocksdict import Rdict", id="rocks-library"),
        pytest.param(
            code_rules.judge_complaints,
            "tests/support/simulation/oracles/order.py",
            "from postdate.wire.delivered import delivered_headers",
            id="judge",
        ),
        pytest.param(
            code_rules.judge_complaints,
            "tests/support/oracles/exactly_once.py",
            "from postdate.wire import murmur2",
            id="judge-by-parent",
        ),
        pytest.param(code_rules.size_complaints, SIDECAR, "x = 1\n" * 601, id="long-module"),
        pytest.param(code_rules.size_complaints, SIDECAR, "def f():\n" + "    x = 1\n" * 70, id="long-function"),
        pytest.param(
            code_rules.argument_complaints, SIDECAR, "def f(self, a, b, c, d, *, e, f, g): ...", id="arguments"
        ),
        pytest.param(code_rules.name_complaints, "sidecar/postdate/sidecar/utils.py", "", id="empty-name"),
        pytest.param(code_rules.name_complaints, "wheel/postdate/wheel/wheel.py", "", id="shadowing-name"),
        pytest.param(code_rules.unfinished_complaints, SIDECAR, "# TO" + "DO: later", id="later"),
        pytest.param(
            code_rules.unfinished_complaints, "tests/unit/x.py", "@pytest.mark.sk" + "ip", id="stepping-aside"
        ),
        pytest.param(code_rules.except_complaints, SIDECAR, "try:\n    f()\nexcept:\n    pass", id="bare-except"),
        pytest.param(
            code_rules.except_complaints, SIDECAR, "try:\n    f()\nexcept Exception:\n    pass", id="swallowed"
        ),
        pytest.param(code_rules.machine_complaints, SIDECAR, "path = '/ro" + "ot/x'", id="path"),
        pytest.param(
            code_rules.machine_complaints, "requirements-dev.lock", "-i https://py" + "pi.org/simple", id="registry"
        ),
    ],
)
def test_the_rule_detects_a_violation(rule: Rule, place: str, text: str) -> None:
    assert len(list(rule(place, text))) == 1


def test_granted_rights_are_not_reported() -> None:
    lazy = "def audit():\n    from postdate.spark import audit\n"
    assert (
        list(
            code_rules.import_complaints("sidecar/postdate/cli/spark/x.py", lazy + "from postdate.wheel import index\n")
        )
        == []
    )
    handled = "try:\n    f()\nexcept Exception as error:\n    report(error)\n"
    assert list(code_rules.except_complaints(SIDECAR, handled)) == []


def test_every_exception_to_the_number_of_arguments_is_needed() -> None:
    assert {*code_rules.MANY_ARGUMENTS} == set().union(
        *(code_rules.many_arguments(path.read_text(encoding="utf-8")) for path in CODE)
    )


def test_every_judge_that_the_rule_names_exists() -> None:
    places = [path.relative_to(ROOT).as_posix() for path in TESTS]
    assert [begin for begin in code_rules.JUDGES if not any(place.startswith(begin) for place in places)] == []


def test_the_rule_names_every_inner_package_and_only_existing_modules() -> None:
    places = [path.relative_to(ROOT).as_posix() for path in CODE]
    named = {f"{outer}.{name}" for outer, names in code_rules.INNER.items() for name in names}
    assert named - {code_rules.module_name(place) for place in places} == set()
    packages = {code_rules.module_name(place) for place in places if place.endswith("/__init__.py")}
    assert {name for name in packages if name.rpartition(".")[0] in code_rules.INNER} - named == set()


def test_the_lock_file_contains_only_exact_versions() -> None:
    lines = (ROOT / "requirements-dev.lock").read_text(encoding="utf-8").splitlines()
    entries = [line for line in lines if line and not line.startswith(("#", " "))]
    assert [entry for entry in entries if "==" not in entry.partition(";")[0]] == []
    assert "pyspark==4.0.0 \\" in entries


def test_ci_runs_the_test_command_of_the_readme() -> None:
    assert "\nmake test" in (ROOT / "README.md").read_text(encoding="utf-8")
    assert " test " in (ROOT / ".ci/run").read_text(encoding="utf-8").partition("make ")[2]
