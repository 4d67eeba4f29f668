"""The state of audits: five Delta tables under one path. All but `acknowledgements` commit together.

    origins            one row for each origin that an audit has judged, or whose effects it read before the request
    violations         one row for each finding, with the run that found it
    acknowledgements   one row for each time that somebody has closed the violations of a run
    offsets            one row for each partition: the first unread offset
    runs               one row for each run: the commit point

Delta commits one table at a time, so an audit writes `origins`, `violations` and `offsets` first. Its last commit adds
a row to `runs` that names the versions of those tables. An audit begins with the newest row of `runs`. If a table has
later commits, an audit has failed before its last commit, and the table is restored to the version that the row names.
The commit of the row also carries the state as a note, since reading two tables takes longer than judging few records.

Of two audits at the same time, only one adds the next row to `runs`: Delta appends a row of each number once. On a
local disk, Delta looks for a file and then renames another file to its name, so two processes may both commit. There an
audit also holds a lock (`state_lock`). An acknowledgement belongs to no run, so it conflicts with no audit.
"""

from __future__ import annotations

import errno
import fcntl
import json
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import msgspec
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import MapType, StructType

from postdate.spark.columns.by_origin import ORIGIN, PARTITION
from postdate.spark.errors import CannotRun, JobUsageError
from postdate.spark.job.cluster_queries import TopicPartition
from postdate.spark.limits import RUNS_BETWEEN_TIDYING
from postdate.spark.records.policies import PolicyRow, read_rows
from postdate.spark.rules.schedules.occurrences import OF_SCHEDULES
from postdate.spark.session.output_paths import located
from postdate.spark.session.small_tables import small_table
from postdate.spark.state.chain import TAIL
from postdate.spark.state.delta import DeltaTables, TableForm, empty_table, overtaken

ORIGINS, VIOLATIONS, OFFSETS, RUNS = "origins", "violations", "offsets", "runs"
ACKNOWLEDGEMENTS: Final = "acknowledgements"
_LOCK: Final = ".lock"
# The errors of a file system without locks.
_NO_LOCKS: Final = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)
_VERSIONED: Final = (ORIGINS, VIOLATIONS, OFFSETS)
_PROPERTIES: Final = {"delta.enableDeletionVectors": "true"}
# Each of the other tables is read as a whole, so Delta records no minimum and maximum for their files.
_UNMEASURED: Final = {"delta.dataSkippingNumIndexedCols": "0"}

VIOLATION_COLUMNS: Final = (
    "run bigint, topic string, partition int, offset bigint, verdict string, details array<string>, target string,"
    " found_ms bigint"
)
_OFFSET_COLUMNS: Final = (
    "topic string, partition int, next_offset bigint, lost_before_ms bigint, topic_id string, run bigint,"
    " known_ms bigint, was_recreated boolean"
)
_RUN_COLUMNS: Final = (
    "run bigint, snapshot_ms bigint, committed_ms bigint, versions map<string,bigint>, targets array<string>,"
    f" tails array<struct<{TAIL.replace(' ', ':').replace(',:', ',')}>>, counts map<string,bigint>, open bigint,"
    " violations bigint, judged bigint, lateness_ms map<string,bigint>, settings string, policies array<struct<"
    "topic:string,partition:int,name:string,first:bigint,text:string>>, zones map<string,string>, recurs boolean"
)
_ACKNOWLEDGED: Final = "run bigint, acknowledged_by string, acknowledged_ms bigint, note string"
_SAME: Final = "old.topic = new.topic AND old.partition = new.partition AND old.offset = new.offset"


def _form(columns: str) -> TableForm:
    kind = StructType.fromDDL(columns)
    assert isinstance(kind, StructType), "a table has columns"
    return TableForm(kind, properties={**_PROPERTIES, **_UNMEASURED})


@dataclass(frozen=True)
class AuditState:
    """The state after `run`. Partitions are named `topic/number`, and `next` has their first unread offsets.

    `topic_ids` detect a topic that was deleted and created again; `recreated` are the targets that were created again.
    `known_ms` is the time since which each partition of a target is known to exist, under its present topic id. `tails`
    are the last records of the dispatch logs, and `policies` the named policies that unread requests may need. `zones`
    are the versions of the time zone rules of the last owners, by partition. `recurs` is True if a run has read a
    schedule or an occurrence.

    `counts` has the number of rows by verdict over all runs, including rows that have been deleted, and the number of
    findings that have no row in `origins`, such as breaks of the chain. `open` is the
    number of rows that are not closed, `violations` the number of rows in the table `violations`. `versions` are the
    versions of the tables that belong to this state.
    """

    run: int = 0
    snapshot_ms: int = 0
    topic_ids: dict[str, str] = field(default_factory=dict)
    next: dict[str, int] = field(default_factory=dict)
    lost_before_ms: dict[str, int] = field(default_factory=dict)
    known_ms: dict[str, int] = field(default_factory=dict)
    recreated: frozenset[str] = frozenset()
    targets: list[str] = field(default_factory=list)
    tails: list[list[Any]] = field(default_factory=list)
    policies: tuple[PolicyRow, ...] = ()
    zones: dict[str, str] = field(default_factory=dict)
    recurs: bool = False
    counts: dict[str, int] = field(default_factory=dict)
    open: int = 0
    violations: int = 0
    versions: dict[str, int] = field(default_factory=dict)


def state_path(partition: TopicPartition) -> str:
    """Returns the name of a partition in a state."""
    return f"{partition.topic}/{partition.number}"


class StateStore:
    """The state under one path; an instance belongs to one audit."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._spark = spark
        self._tables = DeltaTables(spark, path)
        self._base: dict[str, int] = {}
        self._forms: dict[str, TableForm] = {}
        self.path = self._tables.path

    def newest(self) -> AuditState:
        """Returns the state of the last committed run, or an empty state before the first run.

        Raises JobUsageError if the path holds a state of Postdate before 0.2. A commit that adds a run to the table
        `runs` carries the state as its note. Cost: no job if the newest commit is such a commit, otherwise at most two
        queries.
        """
        version, note = self._tables.newest(RUNS)
        if note.startswith("{"):  # otherwise the commit does not belong to a run
            return msgspec.json.decode(note, type=AuditState)
        if version < 0:
            _refuse_old_form(self._spark, self.path)
            return AuditState()
        newest_rows = self._tables.read(RUNS).orderBy(F.desc("run")).limit(1).collect()
        if not newest_rows:
            return AuditState()
        row = newest_rows[0]
        # The state of an earlier version of Postdate lacks the newest columns.
        offsets = [offset.asDict() for offset in self._tables.read(OFFSETS, row["versions"][OFFSETS]).collect()]
        places = {state_path(TopicPartition(offset["topic"], offset["partition"])): offset for offset in offsets}
        return AuditState(
            run=row["run"],
            snapshot_ms=row["snapshot_ms"],
            topic_ids={offset["topic"]: offset["topic_id"] for offset in offsets if offset["topic_id"] is not None},
            next={place: offset["next_offset"] for place, offset in places.items()},
            lost_before_ms={place: offset["lost_before_ms"] for place, offset in places.items()},
            known_ms={
                place: offset["known_ms"] for place, offset in places.items() if offset.get("known_ms") is not None
            },
            recreated=frozenset(offset["topic"] for offset in offsets if offset.get("was_recreated")),
            targets=list(row["targets"]),
            tails=[list(tail) for tail in row["tails"]],
            policies=read_rows(row.asDict().get("policies") or ()),
            zones=dict(row.asDict().get("zones") or {}),
            recurs=bool(row.asDict().get("recurs")),
            counts=dict(row["counts"]),
            open=row["open"],
            violations=row["violations"],
            versions=dict(row["versions"]),
        )

    def prepare(self, state: AuditState, origins: TableForm) -> None:
        """Restores `origins` and `violations` to the versions in `state`, or empties them if no run is committed. Adds
        missing columns of `origins`.

        Must run before the audit writes. A table that does not exist is created with its first rows. Raises CannotRun
        if another audit writes at the same time.
        """
        rows = replace(origins, properties={**_PROPERTIES, **origins.properties})
        self._forms = {ORIGINS: rows, VIOLATIONS: _form(VIOLATION_COLUMNS), OFFSETS: _form(_OFFSET_COLUMNS)}
        for name, form in self._forms.items():
            self._base[name], _ = self._tables.newest(name)
            is_left = self._base[name] >= 0 and self._base[name] != state.versions.get(name)
            if not is_left or name == OFFSETS:  # each commit replaces all rows of OFFSETS
                continue
            if state.run:
                self._tables.restore(name, state.versions[name])
            else:
                self._tables.replace(name, empty_table(self._spark, form), form)
        if self._base[ORIGINS] >= 0:
            self._tables.widen(ORIGINS, self._forms[ORIGINS])

    def origins(self) -> DataFrame:
        """Returns the rows of all origins, including those that this audit has written."""
        if ORIGINS in self._forms and not self._tables.exists(ORIGINS):
            return empty_table(self._spark, self._forms[ORIGINS])
        return self._tables.read(ORIGINS)

    def origins_of(self, state: AuditState) -> DataFrame:
        """Returns the rows of all origins as of `state`."""
        return self._tables.read(ORIGINS, state.versions[ORIGINS])

    def create(self, name: str) -> None:
        """Creates a table if it does not exist. Cost: one commit.

        Rows without some of its columns can then be added, and no nulls are written for these columns.
        """
        if not self._tables.exists(name):
            self._tables.append(name, empty_table(self._spark, self._forms[name]), self._forms[name])

    def add(self, name: str, rows: DataFrame) -> None:
        """Adds rows to a table. They become valid with `commit`."""
        self._tables.append(name, rows, self._forms[name])

    def merge_origins(self, rows: DataFrame, condition: str) -> None:
        """Replaces the rows of these origins, and adds new rows. `condition` limits the files that are read."""
        self._tables.merge(ORIGINS, rows, f"{condition} AND {_SAME}")

    def known_violations(self, state: AuditState) -> DataFrame:
        """Returns all violations of `state`."""
        return self._tables.read(VIOLATIONS, state.versions.get(VIOLATIONS, 0))

    def open_violations(self, state: AuditState) -> int:
        """Returns the number of violations of `state` that nobody has acknowledged.

        Cost: one job if somebody has acknowledged violations of any run.
        """
        if not state.violations or not self._tables.exists(ACKNOWLEDGEMENTS):
            return state.violations
        closed = self._tables.read(ACKNOWLEDGEMENTS).select("run").distinct()
        return self.known_violations(state).join(F.broadcast(closed), "run", "left_anti").count()

    def expire(self, before_day: str, log_starts: Mapping[str, int]) -> None:
        """Deletes closed rows that were due before a day and whose requests have left their topic.

        `log_starts` are the first offsets of the request partitions. Keeps the rows that a later run may need: rows
        that an open row names, such as the control that moved it; rows that name an open row; rows with the id of a
        row in doubt; and controls that may have changed an open row with a fate that was lost.
        """
        left = [
            f"(topic = {_text(topic)} AND partition = {number} AND offset < {start})"
            for (topic, _, number), start in ((place.rpartition("/"), start) for place, start in log_starts.items())
            if start > 0
        ]
        if not left:
            return
        table, named = self._tables.read(ORIGINS), F.explode("links").alias("named")
        old = table.where(f"state = 'closed' AND due_day < DATE'{before_day}' AND ({' OR '.join(left)})")
        opened = table.where("state != 'closed'")
        needed = opened.select(*PARTITION, named).withColumnRenamed("named", "offset")
        naming = old.select(*ORIGIN, named).join(
            opened.select(*PARTITION, F.col("offset").alias("named")), [*PARTITION, "named"], "left_semi"
        )
        in_doubt = table.where("state = 'doubtful'").select(*PARTITION, "id")
        related = old.join(in_doubt, [*PARTITION, "id"], "left_semi")  # a row cancelled by id does not name the cancel
        first = opened.groupBy(*PARTITION).agg(F.min("offset").alias("first"))
        lost = old.where(_may_have_lost_fates()).join(first, list(PARTITION)).where("first < offset")
        for rows in (naming, related, lost):
            needed = needed.unionByName(rows.select(*ORIGIN))
        rows = old.select(*ORIGIN).join(needed, list(ORIGIN), "left_anti")
        self._tables.remove(ORIGINS, rows, f"old.state = 'closed' AND old.due_day < DATE'{before_day}' AND {_SAME}")

    def commit(self, state: AuditState, figures: Mapping[str, Any]) -> AuditState:
        """Commits `state` atomically, and returns it with the versions of its tables.

        `figures` are more columns for the row of the run. Raises CannotRun if another audit has used the path
        meanwhile, or if `runs` was set back to an earlier version.
        """
        self._tables.replace(OFFSETS, self._offsets(state), self._forms[OFFSETS])
        for name in (ORIGINS, VIOLATIONS):  # the first run may have had no row for them
            self.create(name)
        if state.run % RUNS_BETWEEN_TIDYING == 0:
            for name in (*_VERSIONED, RUNS):
                self._tables.tidy(name)
        versions = {}
        for name in _VERSIONED:
            own = self._tables.commits_after(name, self._base[name])
            if not all(own):
                raise overtaken(self.path)
            versions[name] = self._base[name] + len(own)
        kept = replace(state, versions=versions)
        row = (
            *(kept.run, kept.snapshot_ms, time.time_ns() // 1_000_000, versions, kept.targets, kept.tails),
            *(kept.counts, kept.open, kept.violations, figures["judged"], figures["lateness_ms"]),
            *(json.dumps(figures["settings"]), kept.policies, kept.zones, kept.recurs),
        )
        note = msgspec.json.encode(kept).decode()
        if not self._tables.append_once(RUNS, _run_row(self._spark, row), _form(_RUN_COLUMNS), kept.run, note):
            if self.newest().run >= kept.run:
                raise overtaken(self.path)
            raise CannotRun(f"{self.path}/{RUNS} was set back to an earlier version. Use a new path for the state.")
        self._base = dict(versions)
        return kept

    def _offsets(self, state: AuditState) -> DataFrame:
        rows = [
            (
                *(topic, int(number), read, state.lost_before_ms.get(place, -1)),
                *(state.topic_ids.get(topic), state.run, state.known_ms.get(place), topic in state.recreated),
            )
            for place, read in state.next.items()
            for topic, _, number in [place.rpartition("/")]
        ]
        return small_table(self._spark, rows, _OFFSET_COLUMNS)


def last_verdicts(spark: SparkSession, path: str) -> DataFrame:
    """Returns the last verdicts on each origin in the state at `path`, with the `run` that found them.

    Raises JobUsageError if no run has been committed.
    """
    store = StateStore(spark, path)
    state = store.newest()
    if not state.run:
        raise JobUsageError(f"No audit with --state {path} has judged anything yet.")
    rows = store.origins_of(state).where(F.col("verdicts").isNotNull())
    return rows.drop("facts", "links", "id")


@contextmanager
def state_lock(spark: SparkSession, path: str) -> Iterator[None]:
    """Holds the lock of a state on a local disk during the context. Does nothing on other file systems.

    The operating system releases the lock when the process ends, also if it is killed. A network file system without
    locks gives no protection. Raises CannotRun if another audit holds the lock, or if the path cannot be written.
    """
    place, system = located(spark, path)
    if system.getUri().getScheme() != "file":
        yield
        return
    directory = Path(system.makeQualified(place).toUri().getPath())
    try:
        directory.mkdir(parents=True, exist_ok=True)
        lock = (directory / _LOCK).open("w")
    except OSError as error:
        raise CannotRun(f"{path} cannot be written: {error.strerror}") from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise CannotRun(f"Another audit is using {path}. Run this one again when it has ended.") from error
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise CannotRun(f"{path} cannot be locked: {error.strerror}") from error
        yield


def acknowledge(spark: SparkSession, path: str, run: int, by: str, note: str | None) -> int:
    """Closes the violations that a run has found, and returns their number.

    Raises JobUsageError if there is no such state, or if the run found none.
    """
    tables = DeltaTables(spark, path)
    if not tables.exists(RUNS):
        _refuse_old_form(spark, tables.path)
        raise JobUsageError(f"{path} holds no state: no audit with --state {path} has finished.")
    store = StateStore(spark, path)
    newest = store.newest()
    count = store.known_violations(newest).where(F.col("run") == run).count() if newest.violations else 0
    if not count:
        raise JobUsageError(f"Run {run} of {path} has found no violation.")
    row = (run, by, time.time_ns() // 1_000_000, note)
    tables.append(ACKNOWLEDGEMENTS, small_table(spark, [row], _ACKNOWLEDGED), _form(_ACKNOWLEDGED))
    return count


def _run_row(spark: SparkSession, row: Iterable[Any]) -> DataFrame:
    """Returns the row of a run. Maps are passed to Spark as JSON objects."""
    kind = _form(_RUN_COLUMNS).schema
    maps = {column.name: column.dataType.simpleString() for column in kind if isinstance(column.dataType, MapType)}
    values = [json.dumps(value) if column.name in maps else value for column, value in zip(kind, row, strict=True)]
    columns = ", ".join(
        f"{column.name} {'string' if column.name in maps else column.dataType.simpleString()}" for column in kind
    )
    given = small_table(spark, [values], columns)
    return given.select(
        *(
            F.from_json(column.name, maps[column.name]).alias(column.name) if column.name in maps else column.name
            for column in kind
        )
    )


def _may_have_lost_fates() -> Column:
    """True if a row belongs to a control whose effects may have left the dispatch log unread.

    The fate of a control is in the same dispatch-log record as its effects, so the effects may be lost only if the
    control has no fate. The fate of a bulk reschedule comes after its effects, so these may be lost in any case.
    """
    action = F.col("action")
    # Only a bulk reschedule names neither an id nor an origin.
    in_bulk = (action == "reschedule") & F.col("id").isNull() & F.coalesce(F.size("links") <= 0, F.lit(True))
    return (action.isin("reschedule", *OF_SCHEDULES) & F.col("fate").isNull()) | in_bulk


def _text(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _refuse_old_form(spark: SparkSession, path: str) -> None:
    """Raises JobUsageError if the path holds a state of Postdate before 0.2, which was not a Delta table."""
    place, system = located(spark, f"{path}/state-*.json")
    if system.globStatus(place):
        raise JobUsageError(
            f"{path} holds a state of an earlier version of Postdate, which this version cannot read. Name a new "
            "directory for --state: its first run audits everything that the topics still hold."
        )
