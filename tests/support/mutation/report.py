"""The report of a run: counts by module, and the scores over all changes and over the detectable ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Set as AbstractSet

DETECTED, SURVIVED, UNFIT = "detected", "survived", "unfit"
SCORE_MIN = 0.95


def report(results: dict[str, str], undetectable: AbstractSet[str]) -> tuple[str, bool]:
    """Returns the report, and True if enough of the detectable changes were detected. `results`: verdicts by the name
    of a change. The report also names each change that is declared undetectable but was detected."""
    counts: dict[str, Counter[str]] = {}
    for name, verdict in results.items():
        excused = verdict == SURVIVED and name in undetectable
        counts.setdefault(name.partition(":")[0], Counter())["undetectable" if excused else verdict] += 1
    total = sum(counts.values(), Counter[str]())
    rows = ["| module | changes | detected | undetectable | survived |", "| --- | --- | --- | --- | --- |"]
    rows += [_row(path, counts[path]) for path in sorted(counts)] + [_row("all", total)]
    detected, left = total[DETECTED], total[SURVIVED]
    survivors = sorted(name for name, verdict in results.items() if verdict == SURVIVED and name not in undetectable)
    wrong = sorted(name for name in undetectable if results.get(name) == DETECTED)
    lines = [
        *rows,
        "",
        f"Detected of all changes: {_share(detected, detected + left + total['undetectable'])}.",
        f"Detected of those that can be detected: {_share(detected, detected + left)}.",
        "",
        *survivors,
        *(f"declared undetectable, but detected: {name}" for name in wrong),
    ]
    is_enough = detected > 0 and detected >= SCORE_MIN * (detected + left)
    return "\n".join(lines) + "\n", is_enough and not wrong


def _row(name: str, counts: Counter[str]) -> str:
    made = counts[DETECTED] + counts[SURVIVED] + counts["undetectable"]
    return f"| {name} | {made} | {counts[DETECTED]} | {counts['undetectable']} | {counts[SURVIVED]} |"


def _share(part: int, whole: int) -> str:
    return f"{part} of {whole}, {100 * part / max(whole, 1):.1f} %"
