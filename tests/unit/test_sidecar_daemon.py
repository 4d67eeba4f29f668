"""Goal: a process that cannot serve says so before it takes a shard from another, and does not flood its log.

Method: the pieces of the daemon that need no broker, with directories and log records of the test's own.
"""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from postdate.sidecar import logs
from postdate.sidecar.daemon import check_data_directory
from postdate.sidecar.errors import ConfigError
from postdate.sidecar.limits import LOG_REPEAT_S


def test_a_data_directory_that_cannot_be_used_is_a_mistake_of_the_configuration(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    for path in (file, file / "below"):
        with pytest.raises(ConfigError, match=r"cannot be used \(.*\): give another by --data"):
            check_data_directory(path)
    check_data_directory(tmp_path / "new" / "one")
    assert (tmp_path / "new" / "one").is_dir()


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
