"""Goal: however many runs there were, the state of audits has few tables of closed rows, and the same rows.

Method: tables of a few rows written as runs write them, merged, kept and tidied in a directory of their own.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from postdate.connectors.spark import compaction
from postdate.connectors.spark.audit_state import AuditState, ClosedTable, StateStore
from postdate.connectors.spark.carried import CLOSED, PART
from postdate.connectors.spark.compaction import compacted

_PLACE = "requests/0"


def _told(store: StateStore, state: AuditState) -> list[int]:
    rows = store.closed(state)
    assert rows is not None
    return sorted(row.offset for row in rows.select("offset").collect())


def test_the_smallest_tables_become_one_and_no_row_is_lost(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction, "CLOSED_TABLES_MAX", 3)
    monkeypatch.setattr(compaction, "CLOSED_TABLES_MERGED", 3)
    store = StateStore(spark, str(tmp_path))
    state = AuditState(run=0, snapshot_ms=0, settings={})
    for run, count in enumerate((2, 1, 50, 1), start=1):
        offsets = spark.range(100 * run, 100 * run + count).select(
            F.col("id").alias("offset"), F.lit(CLOSED).alias(PART)
        )
        name = store.write("rows", run, offsets, PART)
        table = ClosedTable(f"{name}/{PART}={CLOSED}", count, {_PLACE: 100 * run + count - 1})
        state = replace(state, run=run, closed=[*state.closed, table])
    before = _told(store, state)
    merged = compacted(store, state)
    assert [(table.rows, table.last) for table in merged.closed] == [(50, {_PLACE: 349}), (4, {_PLACE: 400})]
    assert _told(store, merged) == before
    store.keep(merged)
    store.tidy(merged)
    newest = store.newest()
    assert newest == merged
    assert _told(store, newest) == before
    assert len(list(tmp_path.glob("rows-*/part=closed"))) == 2
    assert compacted(store, newest) is newest
