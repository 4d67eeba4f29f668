"""Few rows of the driver's as a table that Spark makes by itself.

PySpark's `createDataFrame` has the rows handed over by Python workers, again in each job that reads them and on
executors of a cluster, which need no Python otherwise. Here they travel to the driver's JVM as one JSON text, and are a
part of the plan: no job reads them, and a table without rows is empty to the optimizer too, which then leaves out
whatever hangs on it.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import ArrayType, DataType, StructType

# The optimizer works out what stands on values of the plan, so this is no job either.
_QUERY = "SELECT from_json(said, :kind, map('mode', 'FAILFAST')) AS rows FROM VALUES (:rows) AS given(said)"


def small_table(spark: SparkSession, rows: Iterable[Sequence[Any]], schema: str) -> DataFrame:
    """A table of `rows`, each a sequence with a value for each column of `schema`, in any number; columns may be null.

    Values are texts, whole numbers, truth values, bytes, times with a zone, and sequences: lists of such, and structs.
    Cost: the rows are a part of every plan that reads them, so there should be thousands of them at most.
    """
    kind = StructType.fromDDL(schema)
    assert isinstance(kind, StructType), "a schema names columns"
    spelled = [_spelled(row, kind) for row in rows]
    if not spelled:
        nothing = (f"CAST(NULL AS {field.dataType.simpleString()}) AS `{field.name}`" for field in kind)
        return spark.range(1).where("false").selectExpr(*nothing)
    read = spark.sql(_QUERY, {"rows": json.dumps(spelled), "kind": ArrayType(kind).simpleString()})._jdf
    session: Any = spark._jsparkSession
    row_kind = read.schema().apply(0).dataType().elementType()
    return DataFrame(session.createDataFrame(read.head().getList(0), row_kind), spark)


def _spelled(value: Any, kind: DataType) -> Any:
    """A value as Spark's reader of JSON takes it."""
    if value is None:
        return None
    if isinstance(kind, StructType):
        return {field.name: _spelled(one, field.dataType) for field, one in zip(kind, value, strict=True)}
    if isinstance(kind, ArrayType):
        return [_spelled(one, kind.elementType) for one in value]
    if isinstance(value, bytes | bytearray):
        return b64encode(value).decode()
    return value.isoformat() if isinstance(value, datetime) else value
