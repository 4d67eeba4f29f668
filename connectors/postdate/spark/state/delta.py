"""Delta tables under one path: create, read a version, write, and inspect their logs.

A table's log is `_delta_log/<version>.json`, one file for each commit (the Delta protocol). Every commit of one audit
carries the audit's token as `userMetadata`, so an audit can verify that nobody else wrote between its own commits.
Delta commits one table at a time; `state.store` combines several tables into one state. One thread at a time.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from postdate.spark.errors import CannotRun, first_cause
from postdate.spark.session.places import located
from postdate.spark.session.small_tables import small_table
from postdate.spark.session.start import restored_settings

_METADATA: Final = "spark.databricks.delta.commitInfo.userMetadata"
# Delta sets this with each commit, for the user of the session; an audit restores it after its own commits.
_LAST_COMMIT: Final = "spark.databricks.delta.lastCommitVersionInSession"
# The names of Delta's errors if another writer was faster.
_CONFLICTS: Final = ("DELTA_CONCURRENT", "DELTA_PROTOCOL_CHANGED", "DELTA_METADATA_CHANGED", "io.delta.exceptions.")


@dataclass(frozen=True)
class TableForm:
    """The columns of a table, the columns that partition it, and Delta's table properties."""

    schema: StructType
    partitioned_by: tuple[str, ...] = ()
    properties: dict[str, str] = field(default_factory=dict)


class DeltaTables:
    """The tables under `path`, a directory or URL; an instance belongs to one audit."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self.path = path.rstrip("/")
        self._spark = spark
        self._token = uuid.uuid4().hex

    def exists(self, name: str) -> bool:
        """Whether there is such a table: a log with a commit. A killed writer may have left a log without one. Delta
        deletes old commits once there is a checkpoint."""
        for file in ("_last_checkpoint", f"{0:020d}.json"):
            place, system = located(self._spark, f"{self.path}/{name}/_delta_log/{file}")
            if system.exists(place):
                return True
        return False

    def ensure(self, name: str, form: TableForm) -> None:
        """Creates the table without rows, or adds the columns that it lacks, including nested ones. Costs one commit if
        there is anything to do."""
        exists = self.exists(name)
        if exists and _has_all(self.read(name).schema, form.schema):
            return
        columns = ", ".join(f"`{one.name}` {one.dataType.simpleString()}" for one in form.schema)
        self.append(name, small_table(self._spark, [], columns), form if not exists else None)

    def read(self, name: str, version: int | None = None) -> DataFrame:
        """The rows at a version; None: the newest one."""
        reader = self._spark.read.format("delta")
        if version is not None:
            reader = reader.option("versionAsOf", version)
        return reader.load(f"{self.path}/{name}")

    def append(self, name: str, rows: DataFrame, form: TableForm | None = None) -> None:
        """Adds rows, and columns that the table lacks; creates it in this `form`."""
        with self._marked():
            writer = rows.write.format("delta").mode("append").option("mergeSchema", "true")
            if form is not None:
                writer = writer.partitionBy(*form.partitioned_by).options(**form.properties)
            writer.save(f"{self.path}/{name}")

    def replace(self, name: str, rows: DataFrame) -> None:
        """Replaces all rows."""
        with self._marked():
            rows.write.format("delta").mode("overwrite").option("mergeSchema", "true").save(f"{self.path}/{name}")

    def merge(self, name: str, rows: DataFrame, condition: str, *, updates: bool = True) -> int:
        """Updates the rows that match, inserts the others; returns the number of written rows.

        `condition` compares `old`, the table, with `new`, the rows.
        """
        view = f"postdate_{self._token}"
        rows.createOrReplaceTempView(view)
        update = " WHEN MATCHED THEN UPDATE SET *" if updates else ""
        try:
            found = self._sql(
                f"MERGE WITH SCHEMA EVOLUTION INTO {self._named(name)} AS old USING {view} AS new ON {condition}"
                f"{update} WHEN NOT MATCHED THEN INSERT *"
            ).collect()[0]
        finally:
            self._spark.catalog.dropTempView(view)
        return int(found["num_affected_rows"])

    def delete(self, name: str, condition: str) -> None:
        """Deletes the rows for which the condition holds."""
        self._sql(f"DELETE FROM {self._named(name)} WHERE {condition}")  # noqa: S608 - the caller's own words

    def restored(self, name: str, version: int) -> int:
        """The version that holds the rows of this one and no others: the same, or that of a new commit if there are
        later ones. A commit that another writer adds meanwhile lies after the returned version."""
        if not self.commits_after(name, version):
            return version
        self._sql(f"RESTORE TABLE {self._named(name)} TO VERSION AS OF {version}")
        own = [place for place, is_own in enumerate(self.commits_after(name, version), 1) if is_own]
        return version + own[-1]

    def tidy(self, name: str) -> None:
        """Merges small files, and removes files that no version of the last week needs."""
        self._sql(f"OPTIMIZE {self._named(name)}")
        self._sql(f"VACUUM {self._named(name)}")

    def commits_after(self, name: str, version: int) -> list[bool]:
        """For each commit after this version, in order, whether this object made it."""
        found: list[bool] = []
        while True:
            place, system = located(self._spark, f"{self.path}/{name}/_delta_log/{version + 1 + len(found):020d}.json")
            if not system.exists(place):
                return found
            stream = system.open(place)
            try:
                text = bytes(stream.readAllBytes()).decode()
            finally:
                stream.close()
            actions = (json.loads(line) for line in text.splitlines() if '"commitInfo"' in line)
            tokens = [action["commitInfo"].get("userMetadata") for action in actions if "commitInfo" in action]
            found.append(self._token in tokens)

    def _named(self, name: str) -> str:
        return f"delta.`{f'{self.path}/{name}'.replace('`', '``')}`"

    def _sql(self, statement: str) -> DataFrame:
        with self._marked():
            return self._spark.sql(statement)

    @contextmanager
    def _marked(self) -> Iterator[None]:
        """A context in which writes carry the token. Raises CannotRun if another writer was faster."""
        try:
            with restored_settings(self._spark, _METADATA, _LAST_COMMIT):
                self._spark.conf.set(_METADATA, self._token)
                yield
        except (Py4JJavaError, PySparkException) as error:
            if any(sign in str(error) for sign in _CONFLICTS):
                raise overtaken(self.path) from error
            raise CannotRun(f"{self.path} cannot be read or written: {first_cause(str(error))}") from error


def overtaken(path: str) -> CannotRun:
    """The error of the second of two audits that use a state at the same time."""
    return CannotRun(
        f"Another audit used {path} at the same time. Its result is kept, that of this audit is not: run it again."
    )


def _has_all(found: StructType, wanted: StructType) -> bool:
    """Whether a schema has all fields of another, including nested ones."""
    return _paths(wanted) <= _paths(found)


def _paths(kind: Any, prefix: str = "") -> set[str]:
    if isinstance(kind, StructType):
        return {path for one in kind for path in _paths(one.dataType, f"{prefix}.{one.name}")} | {prefix}
    element = getattr(kind, "elementType", None)
    return _paths(element, f"{prefix}[]") if element is not None else {prefix}
