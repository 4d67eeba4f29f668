"""Goal: an audit that verifies chunks reads the requests only as often as docs/audit.md promises. Method: a history
whose request rows are counted as Spark reads them.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from support.audit_cases.verdicts import DUE, TO_ORDERS, T
from support.audits.judging import staged
from support.audits.written_records import REQUESTS, RandomHistory

_ID = ("postdate-id", b"a")
_OTHERS = 4


def _history(*, names_a_plain_one: bool) -> RandomHistory:
    """Returns a cancelled message, delivered messages with different ids, and a delivered message without an id."""
    history, plain = RandomHistory(T), 10 + _OTHERS
    history.ask(1, TO_ORDERS, ("postdate-delay", b"1s"), _ID)
    history.ask(2, ("postdate-action", b"cancel"), _ID)
    history.commit([1, DUE, "cancelled"], [2, 0, "applied"])
    for offset in range(10, plain + 1):
        id_ = () if offset == plain else (("postdate-id", b"%d" % offset),)
        history.ask(offset, TO_ORDERS, ("postdate-delay", b"1s"), *id_)
        history.deliver(offset, id=dict(id_).get("postdate-id"))
        history.commit([offset, DUE, "delivered"])
    if names_a_plain_one:
        history.ask(plain + 1, ("postdate-action", b"cancel"), ("postdate-origin", f"{REQUESTS}/0/{plain}".encode()))
        history.commit([plain + 1, 0, "applied"])
    return history


def _passes(spark: SparkSession, history: RandomHistory, separate_rows_max: int = 1_000) -> float:
    """Returns how many times an audit reads each request, including the pass over the chunks."""
    taken = spark.sparkContext.accumulator(0)

    def counted(rows: DataFrame) -> DataFrame:
        def note(row: object) -> object:
            taken.add(1)
            return row

        return spark.createDataFrame(rows.rdd.map(note), rows.schema)

    stages = staged(spark, history, reads=counted, separate_rows_max=separate_rows_max)
    assert stages.rows is not None
    assert stages.plain is not None
    stages.rows.count()
    return float(taken.value) / len(history.requests)


def test_the_messages_and_the_requests_with_ids_are_read_together(spark: SparkSession) -> None:
    assert _passes(spark, _history(names_a_plain_one=False)) == 2


def test_a_named_request_that_names_no_other_is_read_once_more(spark: SparkSession) -> None:
    assert _passes(spark, _history(names_a_plain_one=True)) == 3


def test_the_requests_are_read_twice_for_causes_if_too_many_name_another_request(
    spark: SparkSession,
) -> None:
    assert _passes(spark, _history(names_a_plain_one=True), separate_rows_max=_OTHERS) == 4
