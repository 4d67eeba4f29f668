"""Policies for ids in the audit. Goal: in every tier, the audit finds each forged survivor, series or due time, and
accepts correct ones.

Method: as in `test_spark_verdicts`, one history in which every request is a separate case. The rules judge it alone,
after chunks, and as in an audit of few requests; the verdicts must be equal.
"""

from __future__ import annotations

import pytest
from pyspark.sql import Row, SparkSession

from postdate.wire.dispatch_log import decode_record
from postdate.wire.errors import FormatError
from support.audit_cases.id_policies import id_policy_cases
from support.audit_cases.verdicts import DUE, T
from support.audits.judging import ReadRecord, check_case, read_fates
from support.audits.written_records import RandomHistory

CASES = id_policy_cases()


@pytest.fixture(scope="module")
def rows(ruled: dict[str, dict[int, Row]]) -> dict[int, Row]:
    """Returns all cases judged by the rules, by offset."""
    return ruled["ids"]


@pytest.mark.parametrize("name", CASES.expected)
def test_verdict(rows: dict[int, Row], name: str) -> None:
    check_case(rows, CASES.expected[name])


def test_the_fast_tiers_give_the_verdicts_of_the_rules(
    rows: dict[int, Row], chunked: dict[str, dict[int, Row]]
) -> None:
    verdicts_of = {offset: set(row["verdicts"]) for offset, row in chunked["ids"].items()}
    expected = {offset: set(row["verdicts"]) for offset, row in rows.items()}
    assert verdicts_of == {offset: verdicts for offset, verdicts in expected.items() if offset in verdicts_of}
    assert all(
        verdicts <= {"delivered", "pending"} for offset, verdicts in expected.items() if offset not in verdicts_of
    )


def test_each_case_is_judged_as_by_the_rules_alone(
    ruled: dict[str, dict[int, Row]], one_by_one: dict[str, dict[int, Row]]
) -> None:
    assert one_by_one == ruled


_FATES: list[tuple[list[object], int, int, int | None]] = [
    ([1, DUE, "replaced", 2], 2, 2, None),
    ([1, DUE, "replaced", 2, T], 2, 2, T),
    ([1, DUE, "kept", 0], 2, 0, None),
    ([1, DUE, "replaced", 2], 1, -1, None),
    ([1, DUE, "kept", 0], 1, -1, None),
    ([1, DUE, "kept"], 2, -1, None),
    ([1, DUE, "kept", 1], 2, -1, None),
    ([1, DUE, "kept", 2], 2, -1, None),
    ([1, DUE, "kept", 0, T], 2, -1, None),
    ([1, DUE, "replaced", 1], 2, -1, None),
    ([1, DUE, "replaced", 0, T], 2, -1, None),
    ([1, DUE, "replaced", 2, "x"], 2, -1, None),
    ([1, DUE, "replaced", 2, -1], 2, -1, None),
    ([1, DUE, "replaced", 2, T, 1], 2, -1, None),
    ([1, DUE, "stored", 2], 2, -1, None),
]


@pytest.fixture(scope="module")
def read(spark: SparkSession) -> list[ReadRecord]:
    """Returns the audit's reading of these fates."""
    return read_fates(spark, [case[:2] for case in _FATES])


@pytest.mark.parametrize("number", range(len(_FATES)))
def test_a_survivor_is_read_as_the_sidecar_reads_it(read: list[ReadRecord], number: int) -> None:
    """If `survivor` is -1, the record does not parse."""
    fate, version, survivor, series_ms = _FATES[number]
    parses, history = survivor >= 0, RandomHistory(T)
    assert (read[number].parses, len(read[number].fates)) == (parses, parses)
    history.commit(fate, v=version)
    try:
        decoded = decode_record(history.log[0][6])
    except FormatError:
        decoded = None
    assert (decoded is not None) is parses
    for verdicts_of in read[number].fates:
        assert (verdicts_of["fate_name"], verdicts_of["control_offset"], verdicts_of["series_ms"]) == (
            fate[2],
            survivor,
            series_ms,
        )
        assert (verdicts_of["new_due_ms"], verdicts_of["chosen_ms"]) == (None, None)
