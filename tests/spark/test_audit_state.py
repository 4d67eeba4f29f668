"""The tables of a state. Goal: they change together or not at all, whatever dies and whoever else writes.

Method: a store as an audit uses it, with rows of a few columns; audits that are killed are stores that never commit,
and audits at the same time are two stores that began with the same state.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from postdate.spark.errors import CannotRun, JobUsageError
from postdate.spark.session.small_tables import small_table
from postdate.spark.state import store as state_store
from postdate.spark.state.delta import TableForm
from postdate.spark.state.store import ORIGINS, RUNS, AuditState, StateStore

_TOLD = {"judged": 1, "lateness_ms": {"p50": 3}, "settings": {}}
_FACTS = "id:bigint"
_COLUMNS = "topic string, partition int, offset bigint, state string, due_day date"


def _form(facts: str) -> TableForm:
    kind = StructType.fromDDL(f"{_COLUMNS}, facts struct<{facts}>")
    assert isinstance(kind, StructType)
    return TableForm(kind, ("state", "due_day"))


def _rows(spark: SparkSession, *offsets: int, day: str = "2026-01-02", **facts: str) -> DataFrame:
    rows = spark.createDataFrame([(offset,) for offset in offsets], "offset bigint") if offsets else spark.range(0)
    named = [F.col("offset").alias("id"), *(F.lit(value).alias(name) for name, value in facts.items())]
    return rows.select(
        *(F.lit("r").alias("topic"), F.lit(0).alias("partition"), "offset", F.lit("closed").alias("state")),
        *(F.lit(day).cast("date").alias("due_day"), F.struct(*named).alias("facts")),
    )


def _begun(spark: SparkSession, path: Path, facts: str = _FACTS) -> tuple[StateStore, AuditState]:
    """An audit that has read its state, and may write."""
    store = StateStore(spark, str(path))
    state = store.newest()
    store.prepare(state, _form(facts))
    return store, state


def _ran(spark: SparkSession, path: Path, *offsets: int, form: str = _FACTS, **facts: str) -> AuditState:
    """The state after an audit that has added these rows."""
    store, state = _begun(spark, path, form)
    store.add(ORIGINS, _rows(spark, *offsets, **facts))
    read = {"r/0": max(offsets) + 1}
    return store.commit(
        replace(state, run=state.run + 1, next=read, tails=[["r", 0, "l", 1, 1, 1, "w", True, True, True]]), _TOLD
    )


def _offsets(store: StateStore) -> list[int]:
    return sorted(row["offset"] for row in store.origins().collect())


def test_a_run_counts_when_its_last_commit_does(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "state"
    killed, _ = _begun(spark, path)
    killed.add(ORIGINS, _rows(spark, 1))
    assert StateStore(spark, str(path)).newest() == AuditState()
    first = _ran(spark, path, 2)
    assert StateStore(spark, str(path)).newest() == replace(first, lost_before_ms={"r/0": -1})
    killed, _ = _begun(spark, path)
    killed.add(ORIGINS, _rows(spark, 3))
    killed.merge_origins(_rows(spark, 2, 4), "old.state = 'closed'")
    assert _offsets(killed) == [2, 3, 4]
    after, state = _begun(spark, path)
    assert (_offsets(after), state.run) == ([2], 1)


def test_of_two_audits_at_the_same_time_the_second_fails(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "state"
    _ran(spark, path, 1)
    one, state = _begun(spark, path)
    other, _ = _begun(spark, path)
    one.add(ORIGINS, _rows(spark, 2))
    kept = one.commit(replace(state, run=2, next={"r/0": 9}), _TOLD)
    with pytest.raises(CannotRun, match="Another audit used"):
        other.commit(replace(state, run=2, next={"r/0": 5}), _TOLD)
    after, newest = _begun(spark, path)
    assert (_offsets(after), newest.next, newest.run) == ([1, 2], {"r/0": 9}, kept.run)


@pytest.mark.parametrize("table", [ORIGINS, RUNS])
def test_a_table_that_was_never_finished_is_created(spark: SparkSession, tmp_path: Path, table: str) -> None:
    """A first audit was killed between the directory of a log and its first commit."""
    path = tmp_path / "state"
    (path / table / "_delta_log").mkdir(parents=True)
    _ran(spark, path, 1)
    _ran(spark, path, 2)
    store, _ = _begun(spark, path)
    assert _offsets(store) == [1, 2]


def test_the_columns_of_a_state_grow(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "state"
    _ran(spark, path, 1)
    _ran(spark, path, 2, form="id:bigint, more:string", more="x")
    store, _ = _begun(spark, path)
    assert {row["offset"]: row["facts"]["more"] for row in store.origins().collect()} == {1: None, 2: "x"}


def test_a_state_gets_the_columns_of_a_later_version(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, columns = tmp_path / "state", "topic string, partition int, next_offset bigint, lost_before_ms bigint"
    columns += ", topic_id string, run bigint"
    with monkeypatch.context() as earlier:
        earlier.setattr(state_store, "_OFFSET_COLUMNS", columns)
        earlier.setattr(StateStore, "_offsets", lambda *_: small_table(spark, [("r", 0, 2, -1, "id", 1)], columns))
        _ran(spark, path, 1)
    store, state = _begun(spark, path)
    assert (state.next, state.known_ms, state.recreated) == ({"r/0": 2}, {}, frozenset())
    grown = replace(state, run=2, next={"r/0": 2, "t/1": 5}, known_ms={"t/1": 7}, recreated=frozenset({"t"}))
    store.commit(grown, _TOLD)
    newest = StateStore(spark, str(path)).newest()
    assert (newest.next, newest.known_ms, newest.recreated) == (grown.next, grown.known_ms, grown.recreated)


def test_closed_rows_expire_once_their_requests_have_left(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "state"
    _ran(spark, path, 1, 2)
    store, _ = _begun(spark, path)
    store.expire("2026-01-02", {"r/0": 9})
    assert _offsets(store) == [1, 2], "they were due on that day"
    store.expire("2026-01-03", {"r/0": 2})
    assert _offsets(store) == [2], "the other request still lies in its topic"


def test_a_state_of_an_earlier_version_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "state-000007.json").write_text("{}")
    with pytest.raises(JobUsageError, match="Name a new directory for --state"):
        StateStore(spark, str(tmp_path)).newest()
