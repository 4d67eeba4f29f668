"""The record of a run: a page of Markdown, and all raw values as JSON beside it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.peers.cases import Case

_HEAD = """# Postdate beside RocketMQ and NATS

Written by `make peers`. [README.md](README.md#peers) describes the load, the settings and each figure. Raw values, with
histograms: [{raw}]({raw}). The systems ran one after the other. The load average shows what else the machine did.

"""


@dataclass(frozen=True)
class Run:
    """The runs, and the machine."""

    command: str
    commit: str
    began: str
    machine: str
    versions: dict[str, str]
    messages: int
    cases: list[Case]
    failures: list[str]
    """Each system that was not measured completely, with the reason."""


def write(run: Run, page: Path) -> None:
    """Writes the page, and the JSON beside it."""
    raw = page.with_suffix(".json")
    raw.write_text(json.dumps(asdict(run)) + "\n", encoding="utf-8")
    page.write_text(markdown(run, raw.name), encoding="utf-8")


def markdown(run: Run, raw: str) -> str:
    """Returns the page: the conditions, then one table for each case."""
    about = [["command", f"`{run.command}`"], ["commit", run.commit], ["began", run.began], ["machine", run.machine]]
    about += [["messages of a drain", f"{run.messages:,}"], *([name, text] for name, text in run.versions.items())]
    text = _HEAD.format(raw=raw) + _table(["", ""], about)
    for name in dict.fromkeys(case.case for case in run.cases):
        chosen = [case for case in run.cases if case.case == name]
        keys = list(dict.fromkeys(key for case in chosen for key, value in case.figures.items() if _is_shown(value)))
        rows = [[case.system, *(_shown(case, key) for key in keys), _load(case)] for case in chosen]
        text += f"\n## {name}\n\n" + _table(["", *(key.replace("_", " ") for key in keys), "load average"], rows)
    if run.failures:
        text += "\n## Not measured\n\n" + "".join(f"- {' '.join(failure.split())}\n" for failure in run.failures)
    return text


def _is_shown(value: object) -> bool:
    return not isinstance(value, dict)  # a histogram


def _shown(case: Case, key: str) -> str:
    value = case.figures.get(key)
    return "" if value is None else f"{value:,}"


def _load(case: Case) -> str:
    return " to ".join(map(str, case.load_average))


def _table(head: list[str], rows: list[list[str]]) -> str:
    return "".join(f"| {' | '.join(line)} |\n" for line in [head, ["---"] * len(head), *rows])
