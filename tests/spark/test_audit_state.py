"""The tables of a state. Goal: they change together or not at all, even if an audit is killed or another audit writes.
Method: a store as an audit uses it, with rows of a few columns. A store that never commits stands for a killed audit;
two stores that begin with the same state stand for concurrent audits.
"""

from __future__ import annotations

import errno
import threading
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from postdate.spark.audit.job import run_audit
from postdate.spark.audit.options import AuditOptions
from postdate.spark.errors import CannotRun, JobUsageError
from postdate.spark.session.small_tables import small_table
from postdate.spark.state import store as state_store
from postdate.spark.state.delta import DeltaTables, TableForm
from postdate.spark.state.store import OFFSETS, ORIGINS, RUNS, VIOLATIONS, AuditState, StateStore, state_lock

_TOLD = {"judged": 1, "lateness_ms": {"p50": 3}, "settings": {}}
_FACTS = "id:bigint"
_COLUMNS = (
    "topic string, partition int, offset bigint, state string, due_day date, action string, fate string, id binary,"
    " links array<bigint>"
)


def _form(facts: str) -> TableForm:
    kind = StructType.fromDDL(f"{_COLUMNS}, facts struct<{facts}>")
    assert isinstance(kind, StructType)
    return TableForm(kind, ("state", "due_day"))


def _rows(
    spark: SparkSession,
    *offsets: int,
    day: str = "2026-01-02",
    state: str = "closed",
    links: tuple[int, ...] = (),
    id: bytes | None = None,
    action: str = "schedule",
    fate: str | None = "cancelled",
    **facts: str,
) -> DataFrame:
    rows = small_table(spark, [(offset,) for offset in offsets], "offset bigint")
    named = [F.col("offset").alias("id"), *(F.lit(value).alias(name) for name, value in facts.items())]
    return rows.select(
        *(F.lit("r").alias("topic"), F.lit(0).alias("partition"), "offset", F.lit(state).alias("state")),
        F.lit(day).cast("date").alias("due_day"),
        *(F.lit(action).alias("action"), F.lit(fate).cast("string").alias("fate")),
        F.lit(id).cast("binary").alias("id"),
        F.array(*map(F.lit, links)).cast("array<bigint>").alias("links"),
        F.struct(*named).alias("facts"),
    )


def _begun(spark: SparkSession, path: Path, facts: str = _FACTS) -> tuple[StateStore, AuditState]:
    """Returns an audit that has read its state, and may write."""
    store = StateStore(spark, str(path))
    state = store.newest()
    store.prepare(state, _form(facts))
    return store, state


def _ran(spark: SparkSession, path: Path, *offsets: int, form: str = _FACTS, **facts: Any) -> AuditState:
    """Returns the state after an audit that has added these rows."""
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
    assert StateStore(spark, str(path)).newest() == first
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


def test_two_concurrent_commits_add_one_run(spark: SparkSession, tmp_path: Path) -> None:
    """Each commit begins before the other is visible."""
    path, meeting, ended = tmp_path / "state", threading.Barrier(2, timeout=60), list[str]()
    _ran(spark, path, 1)

    def commit(store: StateStore, state: AuditState) -> None:
        tables: Any = store._tables
        append, after = tables.append_once, tables.commits_after
        tables.append_once = lambda *given: (meeting.wait(), append(*given))[1]
        # As if each audit were the only one that commits to the other tables.
        tables.commits_after = lambda name, version: after(name, version) if name == RUNS else [True]
        tables.replace = lambda *_: None
        try:
            store.commit(replace(state, run=2), _TOLD)
            ended.append("committed")
        except CannotRun as error:
            ended.append(str(error)[:18])

    begun = [_begun(session, path) for session in (spark, spark.newSession())]
    threads = [threading.Thread(target=commit, args=one) for one in begun]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(ended) == ["Another audit used", "committed"]
    assert DeltaTables(spark, str(path)).read(RUNS).count() == 2


def test_a_state_is_read_whoever_has_changed_the_table_of_runs(spark: SparkSession, tmp_path: Path) -> None:
    """The last commit is not from an audit: an operator has changed a property of the table."""
    path = tmp_path / "state"
    first = _ran(spark, path, 2)
    spark.sql(f"ALTER TABLE delta.`{path}/{RUNS}` SET TBLPROPERTIES ('delta.logRetentionDuration' = 'interval 9 days')")
    assert StateStore(spark, str(path)).newest() == replace(first, lost_before_ms={"r/0": -1})
    assert _ran(spark, path, 3).run == 2


def test_rows_of_a_concurrent_audit_do_not_become_rows_of_the_state(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another audit writes while this one restores the table that a killed audit has left."""
    path = tmp_path / "state"
    _ran(spark, path, 1)
    killed, _ = _begun(spark, path)
    killed.add(ORIGINS, _rows(spark, 2))
    run, other = DeltaTables._sql, DeltaTables(spark, str(path))

    def slowly(tables: DeltaTables, statement: str) -> DataFrame:
        done = run(tables, statement)
        other.append(ORIGINS, _rows(spark, 3), _form(_FACTS))
        return done

    with monkeypatch.context() as patched:
        patched.setattr(DeltaTables, "_sql", slowly)
        store, state = _begun(spark, path)
    with pytest.raises(CannotRun, match="Another audit used"):
        store.commit(replace(state, run=2), _TOLD)
    after, _ = _begun(spark, path)
    assert _offsets(after) == [1]


def test_an_audit_refuses_a_local_path_that_another_audit_is_using(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(tmp_path / "state")
    with state_lock(spark, path):
        assert run_audit(AuditOptions("localhost:1", ("r",), state=f"file://{path}")) == 1
    assert f"Another audit is using file://{path}. Run this one again when it has ended." in capsys.readouterr().err
    with state_lock(spark, path):
        """The first has released it."""


@pytest.mark.parametrize(("code", "is_refused"), [(errno.ENOLCK, False), (errno.EIO, True)])
def test_a_file_system_without_locks_is_not_refused(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, is_refused: bool
) -> None:
    def flock(*_: Any) -> None:
        raise OSError(code, "no")

    monkeypatch.setattr("fcntl.flock", flock)
    refusal = pytest.raises(CannotRun, match="cannot be locked: no") if is_refused else nullcontext()
    with refusal, state_lock(spark, str(tmp_path)):
        """The audit works."""


def test_a_table_that_was_never_finished_is_created(spark: SparkSession, tmp_path: Path) -> None:
    """A first audit was killed after it had created the directory of the log, while it was writing the first commit."""
    path = tmp_path / "state"
    for table in (ORIGINS, VIOLATIONS, OFFSETS, RUNS):
        log = path / table / "_delta_log"
        log.mkdir(parents=True)
        (log / f".{0:020d}.json.2f1e.tmp").write_text('{"commitInfo"')
    assert StateStore(spark, str(path)).newest() == AuditState()
    _ran(spark, path, 1)
    _ran(spark, path, 2)
    store, _ = _begun(spark, path)
    assert _offsets(store) == [1, 2]


def test_a_table_has_all_columns_whatever_its_first_rows_have(spark: SparkSession, tmp_path: Path) -> None:
    """The rows of consistent chunks have neither facts nor links."""
    store, state = _begun(spark, tmp_path / "state")
    store.add(ORIGINS, _rows(spark, 1).drop("facts"))
    store.commit(replace(state, run=1), _TOLD)
    assert [(row["offset"], row["facts"]) for row in store.origins().collect()] == [(1, None)]


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
        append: Any = DeltaTables.append_once
        earlier.setattr(DeltaTables, "append_once", lambda *given: append(*given[:-1], ""))  # no note, as that version
        earlier.setattr(StateStore, "_offsets", lambda *_: small_table(spark, [("r", 0, 2, -1, "id", 1)], columns))
        _ran(spark, path, 1)
    store, state = _begun(spark, path)
    assert (state.next, state.known_ms, state.recreated) == ({"r/0": 2}, {}, frozenset())
    grown = replace(state, run=2, next={"r/0": 2, "t/1": 5}, known_ms={"t/1": 7}, recreated=frozenset({"t"}))
    store.commit(grown, _TOLD)
    newest = StateStore(spark, str(path)).newest()
    assert (newest.next, newest.known_ms, newest.recreated) == (grown.next, grown.known_ms, grown.recreated)


def test_a_state_whose_table_of_runs_was_restored_requires_a_new_path(spark: SparkSession, tmp_path: Path) -> None:
    """Delta remembers the appended runs, and refuses to append one again."""
    path = tmp_path / "state"
    _ran(spark, path, 1)
    _ran(spark, path, 2)
    spark.sql(f"RESTORE TABLE delta.`{path}/{RUNS}` TO VERSION AS OF 0")
    with pytest.raises(CannotRun, match="runs was set back to an earlier version"):
        _ran(spark, path, 3)


def test_closed_rows_expire_once_their_requests_have_left(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "state"
    _ran(spark, path, 1, 2)
    store, _ = _begun(spark, path)
    store.expire("2026-01-02", {"r/0": 9})
    assert _offsets(store) == [1, 2], "they were due on that day"
    store.expire("2026-01-03", {"r/0": 2})
    assert _offsets(store) == [2], "the other request still lies in its topic"


def test_rows_expire_unless_an_open_row_needs_them(spark: SparkSession, tmp_path: Path) -> None:
    """The open row names the control that has moved it, and its predecessor names the open row as the survivor."""
    moved, control, predecessor, other = 1, 2, 3, 4
    path = tmp_path / "state"
    _ran(spark, path, control, other)
    store, _ = _begun(spark, path)
    store.add(ORIGINS, _rows(spark, moved, state="pending", links=(control,)))
    store.add(ORIGINS, _rows(spark, predecessor, links=(moved,)))
    store.expire("2026-01-03", {"r/0": 9})
    assert _offsets(store) == [moved, control, predecessor]


def test_rows_expire_unless_they_have_the_id_of_a_row_in_doubt(spark: SparkSession, tmp_path: Path) -> None:
    """A `cancelled` names no control: only the id relates cancel and message. A pending message has no such fate."""
    cancelled, cancel, other, pending, before = 1, 2, 3, 4, 5
    path = tmp_path / "state"
    _ran(spark, path, other, id=b"c")
    store, _ = _begun(spark, path)
    for id, state, of_state, closed in ((b"a", "doubtful", cancelled, cancel), (b"b", "pending", pending, before)):
        store.add(ORIGINS, _rows(spark, of_state, state=state, id=id))
        store.add(ORIGINS, _rows(spark, closed, id=id))
    store.expire("2026-01-03", {"r/0": 9})
    assert _offsets(store) == [cancelled, cancel, pending]


def test_controls_whose_fates_may_be_lost_expire_behind_the_requests_before_them(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A lost `moved` would name the control. Without it, no record names a control by id or a bulk control. If the log
    has the `applied` of a control by id, it also has the `moved`."""
    before, pending, lost, paused, known, in_bulk, later = 1, 2, 3, 4, 5, 6, 7
    path = tmp_path / "state"
    _ran(spark, path, before, action="reschedule", fate="applied")
    store, _ = _begun(spark, path)
    store.add(ORIGINS, _rows(spark, pending, state="pending", id=b"a", fate=None))
    store.add(ORIGINS, _rows(spark, lost, id=b"a", action="reschedule", fate=None))
    store.add(ORIGINS, _rows(spark, paused, id=b"a", action="pause", fate=None))
    store.add(ORIGINS, _rows(spark, known, id=b"a", action="reschedule", fate="applied"))
    store.add(ORIGINS, _rows(spark, in_bulk, action="reschedule", fate="applied"))
    store.expire("2026-01-03", {"r/0": 9})
    assert _offsets(store) == [pending, lost, paused, in_bulk]
    store.merge_origins(_rows(spark, pending, fate="delivered"), "true")
    store.add(ORIGINS, _rows(spark, later, state="pending", fate=None))
    store.expire("2026-01-03", {"r/0": 9})
    assert _offsets(store) == [later]


def test_a_state_of_an_earlier_version_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "state-000007.json").write_text("{}")
    with pytest.raises(JobUsageError, match="Name a new directory for --state"):
        StateStore(spark, str(tmp_path)).newest()
