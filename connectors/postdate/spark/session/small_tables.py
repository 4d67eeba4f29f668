"""Creates DataFrames from small tables of the driver, without Python on executors.

PySpark's `createDataFrame` passes its rows through Python workers in each job that reads them, but most jobs need no
Python on executors. `small_table` passes the rows to the driver's JVM as one JSON text, and they become part of
the plan. No Python worker reads them, and the optimizer recognizes an empty table and prunes all operators that depend
on it.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import ArrayType, DataType, StructType

# The optimizer evaluates expressions over literals of the plan, so this query runs no job.
_QUERY = "SELECT from_json(content, :kind, map('mode', 'FAILFAST')) AS rows FROM VALUES (:rows) AS given(content)"


def small_table(spark: SparkSession, rows: Iterable[Sequence[Any]], schema: str) -> DataFrame:
    """Returns a table of `rows`, each a sequence with a value for each column of `schema`. A value may be None.

    Values are texts, whole numbers, booleans, bytes, times with a zone, and sequences, which become lists and structs.
    Cost: each plan that reads the rows contains them, so there should be at most a few thousand rows.
    """
    kind = StructType.fromDDL(schema)
    assert isinstance(kind, StructType), "a schema names columns"
    spelled = [_as_json(row, kind) for row in rows]
    if not spelled:
        nothing = (f"CAST(NULL AS {field.dataType.simpleString()}) AS `{field.name}`" for field in kind)
        return spark.range(1).where("false").selectExpr(*nothing)
    read = spark.sql(_QUERY, {"rows": json.dumps(spelled), "kind": ArrayType(kind).simpleString()})._jdf
    session: Any = spark._jsparkSession
    row_kind = read.schema().apply(0).dataType().elementType()
    return DataFrame(session.createDataFrame(read.head().getList(0), row_kind), spark)


def _as_json(value: Any, kind: DataType) -> Any:
    """Returns a value in the form that Spark's JSON reader accepts."""
    if value is None:
        return None
    if isinstance(kind, StructType):
        return {field.name: _as_json(item, field.dataType) for field, item in zip(kind, value, strict=True)}
    if isinstance(kind, ArrayType):
        return [_as_json(item, kind.elementType) for item in value]
    if isinstance(value, bytes | bytearray):
        return b64encode(value).decode()
    return value.isoformat() if isinstance(value, datetime) else value
