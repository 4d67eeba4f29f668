"""What an audit leaves to the next: how far each topic was read, what is still open, what has been judged for good.

    PATH/state-000007.json            the state of run 7: the newest one counts, whatever else lies there
    PATH/rows-000007-1f3a…/           what run 7 judged, as Parquet: part=closed for good, part=open to be judged
                                      again by the next run

The tables are written first, under names of their own, and the JSON last, by a rename that replaces nothing: a run that
is killed before leaves the state as it was, and of two runs at the same time the second one fails. What no state names
any more is removed by the next run but one. Rows of requests that have left their topic are forgotten with their table.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from postdate.connectors.spark.cluster import Partition
from postdate.connectors.spark.errors import CannotRun, JobUsageError
from postdate.connectors.spark.places import located

_VERSION: Final = 1
_STATE: Final = re.compile(r"state-([0-9]{6,})\.json")
_TABLE: Final = re.compile(r"(?:rows|fresh)-([0-9]{6,})-[0-9a-f]+")
_DRAFT: Final = ".draft-"
# An open row is written with some 300 bytes, most of which are digests.
_OPEN_ROW_BYTES: Final = 200


@dataclass(frozen=True)
class ClosedTable:
    """A table of closed rows: its name, its number of rows, and the last request offset in it by partition."""

    name: str
    rows: int
    last: dict[str, int]


@dataclass(frozen=True)
class AuditState:
    """The state after `run`. Partitions are named `topic/number`; offsets in `next` are the first unread ones.

    `settings` are those that say what requests mean: a state is of no use under others. `topic_ids` tell a topic from
    one that was made anew under its name. `tails` are the last record of each dispatch log. `counts` of closed rows by
    verdict, those that were forgotten too.
    """

    run: int
    snapshot_ms: int
    settings: dict[str, Any]
    topic_ids: dict[str, str] = field(default_factory=dict)
    next: dict[str, int] = field(default_factory=dict)
    lost_before_ms: dict[str, int] = field(default_factory=dict)
    targets: list[str] = field(default_factory=list)
    tails: list[list[Any]] = field(default_factory=list)
    open: str | None = None
    closed: list[ClosedTable] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)


def place_of(partition: Partition) -> str:
    """How a partition is named in a state."""
    return f"{partition.topic}/{partition.number}"


class StateStore:
    """The states under one path of a file system that Spark knows. One run at a time."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._spark = spark
        self._path = path.rstrip("/")

    def newest(self) -> AuditState | None:
        """The state of the last run that was completed; None before the first one. Raises CannotRun: unreadable."""
        numbers = [int(found[1]) for name in self._names() if (found := _STATE.fullmatch(name))]
        if not numbers:
            return None
        name = f"state-{max(numbers):06d}.json"
        try:
            said = json.loads(self._text(name))
            if said.pop("v") != _VERSION:
                raise CannotRun(f"{self._path}/{name} is of another version of Postdate: name a new --state.")
            said["closed"] = [ClosedTable(**table) for table in said["closed"]]
            return AuditState(**said)
        except (ValueError, KeyError, TypeError, IndexError) as error:
            raise CannotRun(f"{self._path}/{name} cannot be read ({error}): name a new --state.") from error

    def _text(self, name: str) -> str:
        """What is in a file, read by the driver itself: a job of Spark's would take longer to plan."""
        place, system = located(self._spark, f"{self._path}/{name}")
        stream = system.open(place)
        try:
            return bytes(stream.readAllBytes()).decode()
        finally:
            stream.close()

    def rows_estimated(self, state: AuditState) -> int:
        """About how many rows a run goes through besides new ones: the open ones, and a tenth of the closed ones, of
        which only a few columns are looked at."""
        opened = 0
        if state.open is not None:
            place, system = located(self._spark, f"{self._path}/{state.open}")
            opened = int(system.getContentSummary(place).getLength()) // _OPEN_ROW_BYTES
        return opened + sum(table.rows for table in state.closed) // 10

    def rows(self, name: str, schema: StructType | None = None) -> DataFrame:
        """A table of the state; one in parts that may be empty needs its `schema`, since it then has no file."""
        reader = self._spark.read if schema is None else self._spark.read.schema(schema)
        return reader.parquet(f"{self._path}/{name}")

    def closed(self, state: AuditState, schema: StructType | None = None) -> DataFrame | None:
        """All closed rows that are remembered; None where there are none. With a `schema`, those columns."""
        names = [f"{self._path}/{table.name}" for table in state.closed if table.rows]
        reader = self._spark.read if schema is None else self._spark.read.schema(schema)
        return reader.parquet(*names) if names else None

    def write(self, kind: str, run: int, rows: DataFrame, *parts: str) -> str:
        """Writes a table for `run`, in `parts`; returns its name. It counts from the state on that names it."""
        name = f"{kind}-{run:06d}-{uuid.uuid4().hex[:12]}"
        rows.write.partitionBy(*parts).parquet(f"{self._path}/{name}")
        return name

    def keep(self, state: AuditState) -> None:
        """Makes `state` the newest one, at once or not at all. Raises CannotRun: another run was faster."""
        name, draft = f"state-{state.run:06d}.json", f"{_DRAFT}{uuid.uuid4().hex}"
        place, system = located(self._spark, f"{self._path}/{draft}")
        stream = system.create(place, True)
        try:
            stream.write(json.dumps({"v": _VERSION, **asdict(state)}).encode())
        finally:
            stream.close()
        context = self._spark.sparkContext
        jvm: Any = context._jvm
        hadoop = jvm.org.apache.hadoop.fs
        # Without an option a rename never replaces what is there.
        options = context._gateway.new_array(hadoop.Options.Rename, 0)  # type: ignore[union-attr]
        files = hadoop.FileContext.getFileContext(system.getUri(), context._jsc.hadoopConfiguration())
        try:
            files.rename(
                system.makeQualified(place), system.makeQualified(hadoop.Path(f"{self._path}/{name}")), options
            )
        except Py4JJavaError as error:
            system.delete(place, False)
            raise CannotRun(f"Another audit has used {self._path} meanwhile: run this one again.") from error

    def tidy(self, state: AuditState) -> None:
        """Removes tables that neither `state` nor a run after it can name, states before it, and drafts of states."""
        live = {*(table.name for table in state.closed), *([state.open] if state.open is not None else [])}
        for name in self._names():
            table, old = _TABLE.fullmatch(name), _STATE.fullmatch(name)
            if table and int(table[1]) <= state.run:
                parts = [name] if not any(one.startswith(f"{name}/") for one in live) else self._parts(name) - live
                self._remove(parts)
            elif name.startswith(_DRAFT) or (old and int(old[1]) < state.run):
                self._remove([name])

    def _parts(self, name: str) -> set[str]:
        return {f"{name}/{part}" for part in self._names(name) if part.startswith("part=")}

    def _remove(self, names: Iterable[str]) -> None:
        for name in names:
            place, system = located(self._spark, f"{self._path}/{name}")
            system.delete(place, True)

    def _names(self, under: str = "") -> list[str]:
        place, system = located(self._spark, f"{self._path}/{under}".rstrip("/"))
        if not system.exists(place):
            return []
        return [str(status.getPath().getName()) for status in system.listStatus(place)]


def require_same(state: AuditState, settings: dict[str, Any], path: str) -> None:
    """Raises JobUsageError where a state was begun with other settings than an audit has now."""
    for name, value in settings.items():
        if state.settings.get(name) != value:
            raise JobUsageError(
                f"{path} was begun with {name} {state.settings.get(name)}, not {value}: name a new --state."
            )


def forgotten(state: AuditState, log_starts: dict[str, int]) -> AuditState:
    """The state without the closed tables all of whose requests have left their topics."""
    kept = [
        table
        for table in state.closed
        if table.rows and any(last >= log_starts.get(place, 0) for place, last in table.last.items())
    ]
    return replace(state, closed=kept)
