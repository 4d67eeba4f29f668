"""Goal: a shard refuses exactly the requests that exceed one of its limits.

Method: `Quota` alone, with made-up records and totals.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from postdate.kafka.interface import Record
from postdate.sidecar.config.settings import RequestTopicConfig
from postdate.sidecar.ingest.quota import Quota
from postdate.wheel.timer_log.checkpoint import Totals


def _record(offset: int, at_ms: int = 5_000, key: bytes | None = b"key", value: bytes | None = b"value") -> Record:
    return Record(offset, at_ms, True, key, value, [])


def _is_accepted(quota: Quota, *records: Record) -> list[bool]:
    return [quota.refusal(record) is None for record in records]


def _begin(quota: Quota, count: int, totals: Totals) -> None:
    index: Any = SimpleNamespace(count=count, checkpoint=SimpleNamespace(totals=totals))
    quota.begin(index)


@pytest.mark.parametrize(
    ("topic", "limits"),
    [
        (RequestTopicConfig(), False),
        (RequestTopicConfig(pending_max=1), True),
        (RequestTopicConfig(pending_size_bytes_max=1), True),
        (RequestTopicConfig(requests_per_second_max=1), True),
    ],
    ids=["none", "requests", "bytes", "rate"],
)
def test_each_limit_alone_refuses_requests(topic: RequestTopicConfig, limits: bool) -> None:
    assert Quota(topic).limits == limits


def test_each_request_counts_once_against_the_limit_of_pending_ones() -> None:
    quota = Quota(RequestTopicConfig(pending_max=5))
    _begin(quota, 2, Totals())
    assert _is_accepted(quota, *map(_record, range(5))) == [True] * 3 + [False] * 2


@pytest.mark.parametrize(("limit", "is_accepted"), [(20, True), (19, False)])
def test_bytes_of_parked_entries_and_of_keys_count(limit: int, is_accepted: bool) -> None:
    quota = Quota(RequestTopicConfig(pending_size_bytes_max=limit))
    _begin(quota, 2, Totals(entries_bytes=5, parked_bytes=7))
    assert _is_accepted(quota, _record(0), _record(1, key=None, value=None)) == [is_accepted, True]


def test_a_request_without_a_key_counts_its_value_and_one_without_a_value_its_key() -> None:
    quota = Quota(RequestTopicConfig(pending_size_bytes_max=8))
    records = [_record(0, key=None), _record(1, value=None), _record(2, value=None)]
    assert _is_accepted(quota, *records) == [True, True, False]


def test_requests_that_an_earlier_owner_accepted_are_accepted_and_not_counted() -> None:
    quota = Quota(RequestTopicConfig(pending_max=1, requests_per_second_max=1))
    quota.resume(3)
    assert _is_accepted(quota, *map(_record, range(5))) == [True] * 4 + [False]


@pytest.mark.parametrize("first_ms", [0, 1, 5_000])
def test_the_rate_is_refilled_by_the_time_between_requests(first_ms: int) -> None:
    quota = Quota(RequestTopicConfig(requests_per_second_max=2))
    at_ms = [first_ms + after_ms for after_ms in (0, 0, 0, 499, 500, 500, 999, 1_000, 9_000, 9_000, 9_000, 8_000)]
    accepted = [True, True, False, False, True, False, False, True, True, True, False, False]
    assert _is_accepted(quota, *(_record(n, at) for n, at in enumerate(at_ms))) == accepted
