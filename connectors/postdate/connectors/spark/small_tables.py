"""Few rows of the driver's as a table that Spark makes by itself.

PySpark's `createDataFrame` has the rows handed over by Python workers, again in each job that reads them and on
executors of a cluster, which need no Python otherwise. Here they travel as one JSON text in the plan, and a table
without rows is empty to the optimizer too, which then leaves out whatever hangs on it.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import ArrayType, DataType, StructType

_QUERY = "SELECT inline(from_json(:rows, :kind, map('mode', 'FAILFAST')))"


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
    return spark.sql(_QUERY, {"rows": json.dumps(spelled), "kind": ArrayType(kind).simpleString()})


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
