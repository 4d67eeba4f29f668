"""Goal: a process does not flood its log, and says at its start what is configured and can have no effect.

Method: log records of the test's own, and a clock that the test moves; the real check at the start over a simulated
cluster.
"""

from __future__ import annotations

import logging

import pytest

from postdate.sidecar import logs
from postdate.sidecar.config import Config, RequestTopicConfig
from postdate.sidecar.daemon import check_topics
from postdate.sidecar.limits import LOG_REPEAT_S
from support.command_bed import SimBed


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


def test_a_rate_that_counts_for_no_target_is_told_at_the_start() -> None:
    bed = SimBed()
    topic = RequestTopicConfig(bed.requests, messages_per_second_max=("mails=20", "*=1000", "sms-*=0.5"))
    said = [
        text for text in check_topics(Config(request_topics=(topic,)), bed.kafka.admin()).warnings if "rate" in text
    ]
    assert len(said) == 1
    assert "'sms-*=0.5' counts for no target, since '*=1000' stands before it" in said[0]
