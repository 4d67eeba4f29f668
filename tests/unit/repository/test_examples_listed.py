"""Goal: every example is listed, has a command, is run by a test, and follows the rules of the repository.

Method: the rules are pure functions of texts. Each runs on the real files, and on texts that violate it.
"""

from __future__ import annotations

import pytest

from postdate.tools.dev_broker.jars import KAFKA_VERSION
from support.deployments.examples import EXAMPLES, LANGUAGES, README, listing_complaints, programs
from support.repository import ROOT
from support.tidiness import code_rules, document_rules

TESTS = (ROOT / "tests/integration/test_examples.py").read_text(encoding="utf-8")
TEXT = README.read_text(encoding="utf-8")
#: The maximum length of an example, which people read from top to bottom.
LINES_MAX = 110


def test_every_example_is_listed_and_run() -> None:
    assert {LANGUAGES[f".{program.rpartition('.')[2]}"] for program in programs()} == {*LANGUAGES.values()}
    assert list(listing_complaints(TEXT, programs(), TESTS)) == []


@pytest.mark.parametrize(
    ("text", "tests", "complaint"),
    [
        pytest.param(TEXT.replace("| [go/", "| [gone/"), TESTS, "no row for go/", id="row"),
        pytest.param(
            TEXT.replace("go run", "go vet").replace("schedule_and_cancel.go\n```", "\n```"),
            TESTS,
            "has 0",
            id="command",
        ),
        pytest.param(TEXT, TESTS.replace('"go/', '"gone/'), "no test runs go/", id="test"),
    ],
)
def test_a_missing_example_is_reported(text: str, tests: str, complaint: str) -> None:
    (found,) = listing_complaints(text, programs(), tests)
    assert complaint in found


@pytest.mark.parametrize("program", programs())
def test_an_example_is_short_finished_and_shows_its_command(program: str) -> None:
    place, text = f"examples/{program}", (EXAMPLES / program).read_text(encoding="utf-8")
    assert text.count("\n") <= LINES_MAX
    assert program.rpartition("/")[2] in text, "the header says how to run it"
    assert list(code_rules.unfinished_complaints(place, text)) == []
    assert list(code_rules.machine_complaints(place, text)) == []
    if program.endswith(".py"):
        assert list(code_rules.size_complaints(place, text)) == []
        assert list(code_rules.except_complaints(place, text)) == []


def test_the_list_has_no_dead_link_and_names_the_jars_that_are_fetched() -> None:
    place = README.relative_to(ROOT).as_posix()
    assert list(document_rules.link_complaints(ROOT, place, TEXT)) == []
    assert list(code_rules.machine_complaints(place, TEXT)) == []
    assert f"/postdate/kafka-{KAFKA_VERSION}\n" in TEXT
