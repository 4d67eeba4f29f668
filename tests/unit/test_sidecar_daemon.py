"""Goal: a process does not flood its log.

Method: log records of the test's own, and a clock that the test moves.
"""

from __future__ import annotations

import logging

import pytest

from postdate.sidecar import logs
from postdate.sidecar.limits import LOG_REPEAT_S


def test_what_repeats_is_logged_once_in_a_while_with_how_often(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("postdate.sidecar.logs.time.monotonic", lambda: now)
    seldom = logs.Seldom()

    def said(level: int, text: str) -> str | None:
        record = logging.LogRecord("kafka", level, "", 0, text, None, None)
        return record.getMessage() if seldom.filter(record) else None

    assert said(logging.ERROR, "broker 1 is away after 17 ms") == "broker 1 is away after 17 ms"
    assert [said(logging.ERROR, f"broker 1 is away after {ms} ms") for ms in range(5)] == [None] * 5
    assert said(logging.ERROR, "something else") == "something else"
    assert said(logging.INFO, "info") == said(logging.INFO, "info") == "info"
    now += LOG_REPEAT_S + 1
    assert said(logging.ERROR, "broker 1 is away after 9 ms") == "broker 1 is away after 9 ms (and 5 times like it)"
