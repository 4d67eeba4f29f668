"""Few tables of closed rows in the state of audits, however many runs there were.

Each run leaves one table. Once there are more than `CLOSED_TABLES_MAX`, the smallest are written together as one, so a
row is written again about once for each doubling of what is remembered (the idea is that of a log-structured merge
tree). The new table counts from the state on that names it; the old ones are removed with the next `tidy`.
"""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import functions as F

from postdate.connectors.spark.audit_state import AuditState, ClosedTable, StateStore
from postdate.connectors.spark.carried import CLOSED, PART
from postdate.connectors.spark.limits import CLOSED_TABLES_MAX, CLOSED_TABLES_MERGED


def compacted(store: StateStore, state: AuditState) -> AuditState:
    """The same state with no more than `CLOSED_TABLES_MAX` closed tables; what is new is written, not yet kept."""
    if len(state.closed) <= CLOSED_TABLES_MAX:
        return state
    by_size = sorted(state.closed, key=lambda table: table.rows)
    small, large = by_size[:CLOSED_TABLES_MERGED], by_size[CLOSED_TABLES_MERGED:]
    rows = store.closed(replace(state, closed=small))
    if rows is None:
        return replace(state, closed=large)
    name = store.write("rows", state.run, rows.coalesce(1).withColumn(PART, F.lit(CLOSED)), PART)
    last: dict[str, int] = {}
    for table in small:
        for place, offset in table.last.items():
            last[place] = max(last.get(place, -1), offset)
    one = ClosedTable(f"{name}/{PART}={CLOSED}", sum(table.rows for table in small), last)
    return replace(state, closed=[*large, one])
