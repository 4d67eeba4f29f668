"""Tables of aligned columns as text, for a terminal and for files."""

from __future__ import annotations

from collections.abc import Sequence


def aligned_lines(
    heading: str, columns: Sequence[str], rows: Sequence[Sequence[object]], rows_max: int | None = None
) -> list[str]:
    """Returns the lines of a table, with text left-aligned and numbers right-aligned; None gives an empty cell. Rows
    beyond `rows_max` are only counted. Without rows, the result is empty."""
    if not rows:
        return []
    shown = [[_cell_text(cell) for cell in row] for row in rows[:rows_max]]
    widths = [max(len(cells[place]) for cells in (columns, *shown)) for place in range(len(columns))]
    is_number = [any(isinstance(row[place], int) for row in rows) for place in range(len(columns))]

    def line(cells: Sequence[str]) -> str:
        padded = (
            cell.rjust(width) if number else cell.ljust(width)
            for cell, width, number in zip(cells, widths, is_number, strict=True)
        )
        return "  " + "  ".join(padded).rstrip()

    more = [f"  and {len(rows) - len(shown):,} more"] if len(rows) > len(shown) else []
    return ["", f"{heading}:", line(columns), *(line(cells) for cells in shown), *more]


def _cell_text(cell: object) -> str:
    return "" if cell is None else f"{cell:,}" if isinstance(cell, int) else str(cell)
