"""One self-contained HTML page: headings, figures, tables and charts, in light and dark mode, without network or
script.

The functions escape all text from topics. They are pure and return text.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from html import escape
from typing import Final

_STYLE: Final = """
:root { color-scheme: light dark; --ground: #ffffff; --panel: #f6f7f9; --ink: #1b2330; --faint: #5b6675;
  --rule: #dde1e7; --one: #2563c9; --two: #c2571a; --three: #6d7683; --bad: #b3261e; --warn: #8a5a00; }
@media (prefers-color-scheme: dark) { :root { --ground: #14181f; --panel: #1c222b; --ink: #e6eaf0; --faint: #9aa5b4;
  --rule: #323b48; --one: #6ea3f5; --two: #f0965a; --three: #98a3b2; --bad: #ff8a80; --warn: #e5b45a; } }
body { margin: 0 auto; max-width: 62rem; padding: 2rem 1rem 4rem; background: var(--ground); color: var(--ink);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; margin: 0; } h2 { font-size: 1.1rem; margin: 2.2rem 0 .6rem; }
p { margin: .4rem 0; } .faint, .nothing { color: var(--faint); }
.figures { display: flex; flex-wrap: wrap; gap: .8rem; margin: 1.2rem 0; }
.figures div { background: var(--panel); border-radius: .5rem; padding: .6rem 1rem; min-width: 7rem; }
.figures b { display: block; font-size: 1.35rem; font-weight: 600; } .figures span { color: var(--faint); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .3rem .8rem .3rem 0; border-bottom: 1px solid var(--rule); vertical-align: top; }
th { color: var(--faint); font-weight: 500; } td.number, th.number { text-align: right; }
td { overflow-wrap: anywhere; } td:first-child, .number { white-space: nowrap; }
.bad { color: var(--bad); font-weight: 600; } .warn { color: var(--warn); }
svg { display: block; width: 100%; min-width: 42rem; height: auto; background: var(--panel); border-radius: .5rem; }
.grid { stroke: var(--rule); } .axis { fill: var(--faint); font-size: 12px; }
.series1 { fill: var(--one); } .series2 { fill: var(--two); } .series3 { fill: var(--three); }
.line1, .line2, .line3 { fill: none; stroke-width: 2; } .line1 { stroke: var(--one); } .line2 { stroke: var(--two); }
.line3 { stroke: var(--three); }
.legend span { margin-right: 1.2rem; }
.legend i { display: inline-block; width: .8rem; height: .8rem; margin-right: .4rem; border-radius: .2rem; }
.key1 { background: var(--one); } .key2 { background: var(--two); } .key3 { background: var(--three); }
"""


def page(title: str, subtitle: str, sections: Iterable[str]) -> str:
    """Returns the whole document. `sections` are HTML; title and subtitle are text."""
    body = "\n".join(sections)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        f'<h1>{escape(title)}</h1>\n<p class="faint">{escape(subtitle)}</p>\n{body}\n</body>\n</html>\n'
    )


def section(heading: str, *parts: str) -> str:
    """Returns a heading with HTML below it."""
    inner = "\n".join(parts)
    return f"<section>\n<h2>{escape(heading)}</h2>\n{inner}\n</section>"


def figures(pairs: Sequence[tuple[str, str]]) -> str:
    """Returns a row of large figures, each with a value and a label."""
    cells = "".join(f"<div><b>{escape(value)}</b><span>{escape(what)}</span></div>" for value, what in pairs)
    return f'<div class="figures">{cells}</div>'


def table(columns: Sequence[str], rows: Sequence[Sequence[object]], marks: Sequence[str] = ()) -> str:
    """Returns a table. Columns of numbers are right-aligned. `marks` has the CSS class of each row, or "" for none."""
    if not rows:
        return '<p class="nothing">none</p>'
    numeric = [
        all(isinstance(row[place], int | float) or row[place] is None for row in rows) for place in range(len(columns))
    ]
    head = "".join(_cell("th", name, is_number) for name, is_number in zip(columns, numeric, strict=True))
    lines = []
    for number, row in enumerate(rows):
        mark = f' class="{marks[number]}"' if marks and marks[number] else ""
        cells = "".join(_cell("td", value, is_number) for value, is_number in zip(row, numeric, strict=True))
        lines.append(f"<tr{mark}>{cells}</tr>")
    body = "\n".join(lines)
    return f'<div class="scroll"><table>\n<tr>{head}</tr>\n{body}\n</table></div>'


def paragraph(text: str, mark: str) -> str:
    """Returns a paragraph with the CSS class `mark`."""
    return f'<p class="{mark}">{escape(text)}</p>'


def spelled_instant(at_ms: int) -> str:
    """Returns the text of an instant in UTC, to the second."""
    return datetime.fromtimestamp(at_ms / 1_000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def duration_label(length_ms: float) -> str:
    """Returns the rounded text of a duration: 250 ms, 1.5 s, 3.0 min, 2.0 h."""
    for size_ms, unit in ((3_600_000, "h"), (60_000, "min"), (1_000, "s")):
        if length_ms >= size_ms:
            return f"{length_ms / size_ms:.1f} {unit}"
    return f"{length_ms:.0f} ms"


def _cell(tag: str, value: object, is_number: bool) -> str:
    text = "" if value is None else f"{value:,}" if isinstance(value, int | float) else str(value)
    return f'<{tag} class="number">{escape(text)}</{tag}>' if is_number else f"<{tag}>{escape(text)}</{tag}>"
