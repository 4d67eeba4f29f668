"""Goal: the links, anchors and commands in the documents exist, every sentence is plain, no line is too long, and the
README stays short.

Method: each rule is a pure function of a document's place and text. It runs on every document, and on a text that
violates it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import yaml

from postdate.cli import EXIT_CODES, postdate
from postdate.cli.config_docs import as_markdown
from postdate.sidecar.errors import Exit
from postdate.spark.audit.output import MEANINGS
from postdate.spark.rules.verdicts import OUTSIDE_WINDOW, VERDICTS
from postdate.wheel.timer_log.database import FAMILIES
from postdate.wire import headers
from postdate.wire.reasons import Reason
from support.repository import ROOT
from support.tidiness import document_rules

ROOTS = ("README", "CHANGELOG", "CONTRIBUTING", "SECURITY")
FOLDERS = ("examples", "clients", "charts/postdate", "tests", "tests/support/*")
READMES = [path for folder in FOLDERS for path in sorted(ROOT.glob(f"{folder}/README.md"))]
OWN = [*(ROOT / f"{name}.md" for name in ROOTS), *READMES]
DOCS = [*OWN, *sorted(ROOT.glob("docs/**/*.md"))]
OTHERS = sorted(ROOT.glob("benchmarks/*.md"))
SOURCES = [
    path
    for pattern in ("sidecar/**/*.py", "wheel/**/*.py", "connectors/**/*.py", "tests/**/*.py", "charts/**/*.yaml")
    for path in sorted(ROOT.glob(pattern))
]
README_WORDS_MAX = 1_200
GLOSSARY_MAX = 20


def place(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("path", DOCS + OTHERS, ids=place)
def test_every_link_and_anchor_resolves(path: Path) -> None:
    assert list(document_rules.link_complaints(ROOT, place(path), path.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize(
    ("link", "complaint"),
    [
        ("docs/nowhere" + ".md", "leads nowhere"),
        ("#no-heading", "names no heading"),
        ("docs/protocol.md#no-heading", "names no heading"),
    ],
)
def test_a_broken_link_and_a_broken_anchor_are_reported(link: str, complaint: str) -> None:
    text = f"[good](LICENSE) [good](#try-it) [good](docs/protocol.md#takeover) [bad]({link})"
    (found,) = document_rules.link_complaints(ROOT, "README.md", text)
    assert complaint in found


def test_a_repeated_heading_has_a_numbered_anchor() -> None:
    assert document_rules.anchors("# A `b`, c\n\n## A b c\n\n```\n# no heading\n```\n") == {"a-b-c", "a-b-c-1"}


def test_every_document_that_a_source_names_exists() -> None:
    texts = {place(path): path.read_text(encoding="utf-8") for path in SOURCES}
    assert [
        found for name, text in texts.items() for found in document_rules.mention_complaints(ROOT, name, text)
    ] == []


def test_a_source_that_names_a_missing_document_is_reported() -> None:
    assert len(list(document_rules.mention_complaints(ROOT, "x.py", "# docs/nowhere" + ".md, docs/protocol.md"))) == 1


@pytest.mark.parametrize("path", DOCS, ids=place)
def test_no_line_is_too_long(path: Path) -> None:
    assert list(document_rules.length_complaints(place(path), path.read_text(encoding="utf-8"))) == []


def test_a_long_line_is_reported_outside_tables_and_code_blocks() -> None:
    fits, is_long = "x" * document_rules.LINE_CHARACTERS_MAX, "x" * (document_rules.LINE_CHARACTERS_MAX + 1)
    text = f"{fits}\n| {is_long} |\n```\n{is_long}\n```\n- {fits}\n"
    assert list(document_rules.length_complaints("x.md", text)) == ["x.md:6: 134 characters, at most 132"]


@pytest.mark.parametrize("path", DOCS + OTHERS, ids=place)
def test_no_sentence_needs_a_second_reading(path: Path) -> None:
    assert list(document_rules.word_complaints(place(path), path.read_text(encoding="utf-8"))) == []


def test_no_sentence_of_a_docstring_or_comment_needs_a_second_reading() -> None:
    found = [
        complaint
        for path in SOURCES
        if path.suffix == ".py"
        for complaint in document_rules.prose_complaints(place(path), path.read_text(encoding="utf-8"))
    ]
    assert found == []


def test_words_are_found_in_docstrings_and_comments_but_not_in_code() -> None:
    lines = [
        'said = "it is told"  # it is made',
        "# It is made",
        "# anew.",
        "def f() -> None:",
        "    'It ends by itself.'",
    ]
    source = "\n".join(lines)
    places = [found.split(":")[1] for found in document_rules.prose_complaints("x.py", source)]
    assert sorted(places) == ["2", "5"]


def test_no_sentence_of_the_help_and_of_the_reference_needs_a_second_reading() -> None:
    meanings = "\n\n".join(MEANINGS.values())
    texts = {**dict(_helps(postdate, "postdate")), "postdate config docs": as_markdown(), "verdicts": meanings}
    assert len(texts) > 30
    assert [found for name, text in texts.items() for found in document_rules.word_complaints(name, text)] == []


def _helps(command: click.Command, name: str) -> Iterator[tuple[str, str]]:
    """Yields the help of a command and of all commands below it."""
    names = ["-h", "--help"]  # a command caches the names of its first context
    with click.Context(command, info_name=name, terminal_width=1_000, help_option_names=names) as context:
        yield name, command.get_help(context).replace("\n", "\n\n")
    for below in command.commands.values() if isinstance(command, click.Group) else ():
        yield from _helps(below, f"{name} {below.name}")


@pytest.mark.parametrize(
    "sentence",
    [
        "The table is made anew.",
        "A request that is\nlikewise refused.",
        "Stop it, or else it fails.",
        "A rate that is none is refused.",
        "It has a topic of its own.",
        "It ends by itself.",
        "The log says why.",
        "A violation is told.",
        "What is due leaves first.",
        "It waits. Who wants to know asks the shard.",
        "| key | Whoever may write |",
        "- Mend the cause.",
    ],
)
def test_a_word_that_forces_a_second_reading_is_reported(sentence: str) -> None:
    assert list(document_rules.word_complaints("x.md", f"Plain text.\n\n{sentence}\n")) != []


def test_plain_sentences_are_not_reported() -> None:
    text = (
        "## What is promised\n\nNothing else fails. Is there none? What happens then? `say`\n\n```\nsay it anew\n```\n"
    )
    assert list(document_rules.word_complaints("x.md", text)) == []


@pytest.mark.parametrize("path", DOCS + OTHERS, ids=place)
def test_every_command_and_option_exists(path: Path) -> None:
    assert list(document_rules.command_complaints(postdate, place(path), path.read_text(encoding="utf-8"))) == []


def test_the_documents_have_commands() -> None:
    assert sum(len(list(document_rules.commands(path.read_text(encoding="utf-8")))) for path in DOCS) > 100


@pytest.mark.parametrize(
    "text",
    [
        "`postdate sned -b x`",
        "```\npostdate send -b x --dely 5s\n```",
        "```sh\npostdate shard statsu --data d && true\n```",
        "```\n15 3 * * *  postdate audit -b x --stat d >> file\n```",
        "`postdate pending list|cuont`",
        "```\npostdate send -b x \\\n  --dely 5s\n```",
    ],
)
def test_a_command_that_does_not_exist_is_reported(text: str) -> None:
    assert len(list(document_rules.command_complaints(postdate, "x.md", text))) == 1


def test_the_readme_and_the_site_list_every_document() -> None:
    documents = {place(path) for path in ROOT.glob("docs/*.md")}
    assert documents - {*re.findall(r"\]\((docs/[^)#]+\.md)\)", text_of("README.md"))} == set()
    listed = [page for section in yaml.safe_load(text_of("mkdocs.yml"))["nav"] for page in _pages(section)]
    assert [page for page in listed if not (ROOT / page).exists()] == []
    records = {place(path) for path in ROOT.glob("benchmarks/*.md")}
    assert (documents | records | {place(path) for path in READMES}) - {*listed} == set()


def _pages(entry: str | list[object] | dict[str, object]) -> list[str]:
    """Returns the pages of an entry in the site's navigation."""
    if isinstance(entry, str):
        return [entry]
    entries = entry.values() if isinstance(entry, dict) else entry
    return [page for one in entries for page in _pages(one)]  # type: ignore[arg-type]


def test_the_readme_is_short() -> None:
    assert len(text_of("README.md").split()) <= README_WORDS_MAX


def test_the_glossary_is_short() -> None:
    words = text_of("docs/architecture.md").partition("## Words\n")[2].partition("\n## ")[0]
    assert 10 < len(re.findall(r"^\| (?!word |---)", words, re.MULTILINE)) <= GLOSSARY_MAX


def test_each_place_that_answers_a_question_exists() -> None:
    table = text_of("docs/architecture.md").partition("## Where to find\n")[2].partition("\n# ")[0]
    rows = [row for row in table.splitlines() if ".py`" in row]
    assert len(rows) > 5
    assert [found for row in rows for found in _place_complaints(row)] == []


def test_a_place_that_does_not_exist_is_reported() -> None:
    assert list(_place_complaints("| q | `_outcome` of `dispatch/gone.py` |")) == ["dispatch/gone.py"]
    assert list(_place_complaints("| q | `_gone` of `shard/cancel_gate.py` |")) == ["_gone"]


def _place_complaints(row: str) -> Iterator[str]:
    """Yields each file of a row that does not exist, and each name that occurs in none of the row's files."""
    folders = ("sidecar/postdate/sidecar", "sidecar/postdate", "connectors/postdate", "wheel/postdate")
    roots = [ROOT / folder for folder in folders]
    text = ""
    for name in re.findall(r"`([\w/]+\.py)`", row):
        files = [root / name for root in roots if (root / name).exists()]
        text += "".join(path.read_text(encoding="utf-8") for path in files)
        if not files:
            yield name
    if text:
        yield from (name for name in re.findall(r"`(\w+)`", row) if not re.search(rf"(?:def|class) {name}\b", text))


def test_the_named_mutations_exist() -> None:
    rules = text_of("docs/testing.md").partition("## Rules of the protocol\n")[2].partition("\n## ")[0]
    named = set(re.findall(r"`(rule \d: [^`]+)`", rules))
    assert {name[:6] for name in named} == {f"rule {number}" for number in range(1, 6)}
    known = "".join(path.read_text(encoding="utf-8") for path in ROOT.glob("tests/support/simulation/mutations/*.py"))
    assert [name for name in sorted(named) if f'"{name}"' not in known] == []


def test_the_header_tables_equal_the_code() -> None:
    named = {value for value in vars(headers).values() if isinstance(value, str) and value.startswith(headers.PREFIX)}
    named.discard(headers.PREFIX)
    assert document_rules.table_headers(text_of("docs/client.md")) == named


def test_the_formats_name_every_reason_and_every_column_family() -> None:
    formats = text_of("docs/formats.md")
    table = formats.partition("### Reasons")[2].partition("\n## ")[0]
    assert {*re.findall(r"`([a-z-]+)`", "".join(row.split("|")[1] for row in table.splitlines() if "|" in row))} == {
        *Reason
    }
    families = formats.partition("## Timer log")[2].partition("\n### Entry")[0]
    assert {*re.findall(r"^\| `([a-z]+)` \|", families, re.MULTILINE)} == {*FAMILIES}


def test_the_audit_document_has_a_row_for_each_verdict() -> None:
    """The first column of its tables contains the names; a row may have several."""
    rows = re.findall(r"(?m)^\| ((?:`[a-z-]+` ?)+)\|", text_of("docs/audit.md"))
    named = {name for row in rows for name in re.findall(r"`([a-z-]+)`", row)}
    assert {*VERDICTS, OUTSIDE_WINDOW} - named == set()


def test_the_table_and_the_help_have_every_exit_code() -> None:
    table = text_of("docs/operations.md").split("## Exit codes")[1].split("\n## ")[0]
    assert [int(code) for code in re.findall(r"^\| (\d) \|", table, re.MULTILINE)] == [*Exit]
    assert [int(code) for code in re.findall(r"(\d) [a-z]", EXIT_CODES)] == [*Exit]
