"""Creates, reads and writes the Delta tables under one path, and inspects their logs.

The log of a table has one file `_delta_log/<version>.json` for each commit (the Delta protocol). Every commit of one
audit carries the audit's token as `userMetadata`, so an audit can verify that no other writer has committed between its
own commits. A commit may also carry a note, after the token and a space. Delta commits one table at a time;
`state.store` combines several tables into one state. One thread at a time.
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
from postdate.spark.session.output_paths import located
from postdate.spark.session.small_tables import small_table
from postdate.spark.session.start import restored_settings

_METADATA: Final = "spark.databricks.delta.commitInfo.userMetadata"
# Delta sets this property of the session with each commit, for the user of the session. An audit restores it after its
# own commits.
_LAST_COMMIT: Final = "spark.databricks.delta.lastCommitVersionInSession"
# The name of the counter with which Delta ignores an append whose number is not higher than that of an earlier append.
_APPLICATION: Final = "postdate-audit"
# The names of the errors that Delta reports if another writer was faster.
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
        """True if the table exists, which means that its log has a checkpoint or its first commit.

        A killed writer may have left a log without a commit. Once there is a checkpoint, Delta deletes old commits.
        """
        for file in ("_last_checkpoint", f"{0:020d}.json"):
            place, system = located(self._spark, f"{self.path}/{name}/_delta_log/{file}")
            if system.exists(place):
                return True
        return False

    def newest(self, name: str) -> tuple[int, str]:
        """Returns the newest version of the table, and the note of its commit; -1 and "" if the table does not exist.

        Reads the log from its last checkpoint on, by default about ten commits, and starts no job.
        """
        version, note = -1, ""
        checkpoint = self._text(name, "_last_checkpoint")
        if checkpoint is not None:
            version = json.loads(checkpoint)["version"]
        for number, metadata in enumerate(self._commits(name, max(version, 0)), max(version, 0)):
            version, note = number, metadata.partition(" ")[2]
        return version, note

    def widen(self, name: str, form: TableForm) -> None:
        """Adds the columns that the table lacks, including nested ones. Cost: one commit if there are any."""
        if not _has_all(self.read(name).schema, form.schema):
            self.append(name, empty_table(self._spark, form), form)

    def read(self, name: str, version: int | None = None) -> DataFrame:
        """Returns the rows of a version of the table, or of its newest version if `version` is None."""
        reader = self._spark.read.format("delta")
        if version is not None:
            reader = reader.option("versionAsOf", version)
        return reader.load(f"{self.path}/{name}")

    def append(self, name: str, rows: DataFrame, form: TableForm) -> None:
        """Adds rows, and columns that the table lacks. Creates the table in this `form` if it does not exist."""
        self._write(name, rows, "append", form)

    def append_once(self, name: str, rows: DataFrame, form: TableForm, number: int, note: str) -> bool:
        """Adds rows as `append` does, and returns True.

        If an append with this or a higher `number` was committed before, changes nothing and returns False. The commit
        carries the `note`.
        """
        before, _ = self.newest(name)
        once = {"txnAppId": _APPLICATION, "txnVersion": number, "userMetadata": f"{self._token} {note}"}
        self._write(name, rows, "append", form, **once)
        return any(self.commits_after(name, before))

    def replace(self, name: str, rows: DataFrame, form: TableForm) -> None:
        """Replaces all rows. Creates the table in this `form` if it does not exist."""
        self._write(name, rows, "overwrite", form)

    def _write(self, name: str, rows: DataFrame, mode: str, form: TableForm, **options: Any) -> None:
        with self._marked():
            is_new = not self.exists(name)
            if is_new:  # its first rows may lack some columns
                rows = empty_table(self._spark, form).unionByName(rows, allowMissingColumns=True)
            writer = rows.write.format("delta").mode(mode).options(mergeSchema=True, **options)
            if is_new:
                writer = writer.partitionBy(*form.partitioned_by).options(**form.properties)
            writer.save(f"{self.path}/{name}")

    def merge(self, name: str, rows: DataFrame, condition: str) -> None:
        """Updates the rows that match, and inserts the other rows.

        `condition` refers to the rows of the table as `old`, and to `rows` as `new`.
        """
        actions = "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        self._merge(f"WITH SCHEMA EVOLUTION INTO {self._named(name)}", rows, condition, actions)

    def remove(self, name: str, rows: DataFrame, condition: str) -> None:
        """Deletes the rows that match; `condition` as for `merge`."""
        self._merge(f"INTO {self._named(name)}", rows, condition, "WHEN MATCHED THEN DELETE")

    def _merge(self, into: str, rows: DataFrame, condition: str, actions: str) -> None:
        view = f"postdate_{self._token}"
        rows.createOrReplaceTempView(view)
        try:
            self._sql(f"MERGE {into} AS old USING {view} AS new ON {condition} {actions}")
        finally:
            self._spark.catalog.dropTempView(view)

    def restore(self, name: str, version: int) -> None:
        """Commits a new version of the table, with the rows of `version`."""
        self._sql(f"RESTORE TABLE {self._named(name)} TO VERSION AS OF {version}")

    def tidy(self, name: str) -> None:
        """Merges small files, and removes files that no version of the last week needs."""
        self._sql(f"OPTIMIZE {self._named(name)}")
        self._sql(f"VACUUM {self._named(name)}")

    def commits_after(self, name: str, version: int) -> list[bool]:
        """Returns for each commit after this version, in order, True if this object made the commit."""
        return [metadata.partition(" ")[0] == self._token for metadata in self._commits(name, version + 1)]

    def _commits(self, name: str, version: int) -> Iterator[str]:
        """Yields the `userMetadata` of each commit from this version on; "" for a commit without it."""
        while (text := self._text(name, f"{version:020d}.json")) is not None:
            actions = (json.loads(line) for line in text.splitlines() if '"commitInfo"' in line)
            notes = [action["commitInfo"].get("userMetadata") for action in actions if "commitInfo" in action]
            yield next((note for note in notes if note), "")
            version += 1

    def _text(self, name: str, file: str) -> str | None:
        """Returns the content of a file of the table's log; None if there is no such file."""
        place, system = located(self._spark, f"{self.path}/{name}/_delta_log/{file}")
        if not system.exists(place):
            return None
        stream = system.open(place)
        try:
            return bytes(stream.readAllBytes()).decode()
        finally:
            stream.close()

    def _named(self, name: str) -> str:
        return f"delta.`{f'{self.path}/{name}'.replace('`', '``')}`"

    def _sql(self, statement: str) -> DataFrame:
        with self._marked():
            return self._spark.sql(statement)

    @contextmanager
    def _marked(self) -> Iterator[None]:
        """Marks all writes in the context with the token. Raises CannotRun if a write fails, for example because
        another writer was faster."""
        try:
            with restored_settings(self._spark, _METADATA, _LAST_COMMIT):
                self._spark.conf.set(_METADATA, self._token)
                yield
        except (Py4JJavaError, PySparkException) as error:
            if any(sign in str(error) for sign in _CONFLICTS):
                raise overtaken(self.path) from error
            raise CannotRun(f"{self.path} cannot be read or written: {first_cause(str(error))}") from error


def empty_table(spark: SparkSession, form: TableForm) -> DataFrame:
    """Returns an empty DataFrame with the columns of this form."""
    return small_table(
        spark, [], ", ".join(f"`{column.name}` {column.dataType.simpleString()}" for column in form.schema)
    )


def overtaken(path: str) -> CannotRun:
    """Returns the error for the slower of two audits that use a state at the same time."""
    return CannotRun(
        f"Another audit used {path} at the same time. Its result is kept, that of this audit is not: run it again."
    )


def _has_all(existing: StructType, wanted: StructType) -> bool:
    """True if a schema has all fields of another, including nested ones."""
    return _paths(wanted) <= _paths(existing)


def _paths(kind: Any, prefix: str = "") -> set[str]:
    if isinstance(kind, StructType):
        return {path for child in kind for path in _paths(child.dataType, f"{prefix}.{child.name}")} | {prefix}
    element = getattr(kind, "elementType", None)
    return _paths(element, f"{prefix}[]") if element is not None else {prefix}
