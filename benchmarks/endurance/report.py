"""The record of a run: a page of Markdown, and all values as JSON beside it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.endurance.figures import Figures
from benchmarks.endurance.system import Sample

_HEAD = """# Endurance

Written by `make endurance`. [README.md](README.md#endurance) describes the load and each figure. All values:
[{raw}]({raw}). Lateness is that of a `read_committed` consumer on the same machine, ms.

"""


@dataclass(frozen=True)
class Run:
    """The conditions and the results of one run."""

    conditions: dict[str, str]
    counts: Figures
    examples: list[str]
    lateness: dict[str, Figures]
    by_minute: list[Figures]
    trend: dict[str, Figures]
    kills_s: list[float]
    cores: dict[str, float]
    load_behind_ms: float
    audit: str
    wrong: list[str]
    samples: list[Sample]


def write(run: Run, page: Path) -> None:
    """Writes the page, and the JSON beside it."""
    page.parent.mkdir(parents=True, exist_ok=True)
    raw = page.with_suffix(".json")
    raw.write_text(json.dumps(run.conditions | asdict(run)) + "\n", encoding="utf-8")
    page.write_text(markdown(run, raw.name), encoding="utf-8")


def markdown(run: Run, raw: str) -> str:
    """Returns the record as Markdown."""
    rows = [[name, _shown(value)] for name, value in run.counts.items()]
    rows += [["kills (SIGKILL)", str(len(run.kills_s))], ["audit by Spark", _shown(run.audit)]]
    rows += [[f"cores used by {name}", f"{share:.2f}"] for name, share in run.cores.items()]
    rows.append(["the load was behind its rate by at most", f"{run.load_behind_ms:,.0f} ms"])
    text = _HEAD.format(raw=raw) + _table(["", ""], [[name, value] for name, value in run.conditions.items()])
    text += "\n## Outcome\n\n" + _table(["", ""], rows)
    if run.wrong:
        text += "\n" + "".join(f"- **Wrong**: {' '.join(each.split())}\n" for each in [*run.wrong, *run.examples])
    text += "\n## Lateness\n\n" + _figures("", run.lateness)
    text += "\n## Memory, files and disk of each sidecar\n\n"
    text += "Medians of two equal times under the full load, and the most of all samples.\n\n" + _figures("", run.trend)
    return text


def _figures(corner: str, rows: dict[str, Figures]) -> str:
    head = list(next(iter(rows.values())))
    return _table([corner, *head], [[name, *(_shown(row[key]) for key in head)] for name, row in rows.items()])


def _shown(value: float | str | None) -> str:
    if value is None or isinstance(value, str):
        return " ".join((value or "").split())
    return f"{value:,}"


def _table(head: list[str], rows: list[list[str]]) -> str:
    return "".join(f"| {' | '.join(line)} |\n" for line in [head, ["---"] * len(head), *rows])
