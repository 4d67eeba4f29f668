"""Log lines of the daemon: one line for each event on stderr, with time, level and thread. No line contains a payload.

External text cannot forge a line: control characters of a message are escaped. The traceback of an event follows as
indented lines.

A traceback shows the type of an exception and where it was raised. It omits the text, because the text of an unexpected
exception may quote a message: the error of `int(value)` quotes the value.
"""

from __future__ import annotations

import logging
import re
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any

from postdate.kafka.settings import log as client_log
from postdate.sidecar.limits import CLIENT_LOG_REPEAT_S, LOG_REPEAT_S, LOG_TEXTS_MAX

#: A number at the start of a word is a quantity, as in 17 ms. Within a word, as in orders/3, it is part of a name.
_QUANTITIES = re.compile(r"(?<!\w)(?<!\w[-./:#])\d+(?:[.,]\d+)*(?![\d/_-]|[.,]\w)")
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")

log = logging.getLogger(__name__)


def source_location(error: BaseException) -> str:
    """Returns the type of an exception, and the file and line that raised it, without its text."""
    frames = traceback.extract_tb(error.__traceback__)
    return type(error).__name__ + (f" in {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "")


class OneLine(logging.Formatter):
    """Formats an event as one line, followed by its traceback as indented lines."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        """Returns the line of an event, without the traceback."""
        return _CONTROLS.sub(lambda match: match[0].encode("unicode_escape").decode(), super().formatMessage(record))

    def formatException(self, ei: Any) -> str:
        """Returns the tracebacks of an exception and its causes, the first cause first, each line indented, without
        texts."""
        chain: list[BaseException] = []
        error: BaseException | None = ei[1]
        while error is not None and error not in chain:
            chain.insert(0, error)
            error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
        lines: list[str] = []
        for cause in chain:
            trace = "".join(traceback.format_tb(cause.__traceback__))
            lines += ["Traceback (most recent call last):", *trace.splitlines(), type(cause).__name__]
        return "\n".join(f"  {line}" for line in lines)


class RateLimitedFilter(logging.Filter):
    """Passes a repeated message at most once in an interval, with the number of suppressed repetitions.

    Messages that differ only in quantities count as the same: a client that cannot reach its broker logs forty times a
    second. Numbers within a name are compared, so two shards, topics or brokers have separate lines. Only warnings and
    errors are limited, and the lines of the client library from INFO on. Lines of the client library are counted
    separately for each thread, since each shard thread has separate clients. Critical messages and messages with a
    traceback always pass. A bounded number of messages is remembered.
    """

    def __init__(self) -> None:
        super().__init__()
        self._seen: dict[tuple[str, str, str], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """True if the record should be logged."""
        is_clients = record.name == client_log.name
        level_min = logging.INFO if is_clients else logging.WARNING
        if not level_min <= record.levelno < logging.CRITICAL or record.exc_info:
            return True
        try:
            text = record.getMessage()
        except (TypeError, ValueError):  # the handler reports the error
            return True
        now = time.monotonic()
        thread, repeat_s = (str(record.threadName), CLIENT_LOG_REPEAT_S) if is_clients else ("", LOG_REPEAT_S)
        key = record.name, thread, _QUANTITIES.sub("#", text)
        since, suppressed = self._seen.get(key, (-repeat_s, 0))
        if now - since < repeat_s:
            self._seen[key] = since, suppressed + 1
            return False
        if len(self._seen) >= LOG_TEXTS_MAX:
            self._seen.clear()
        self._seen[key] = now, 0
        if suppressed:
            record.msg, record.args = f"{text} (and {suppressed} times like it)", None
        return True


def configure_logging(level: str) -> None:
    """Logs the events of this process of severity `level` or higher to stderr, including uncaught exceptions."""
    logging.basicConfig(level=level.upper(), force=True)
    for handler in logging.getLogger().handlers:
        handler.setFormatter(OneLine("%(asctime)s %(levelname)s [%(threadName)s] %(message)s"))
        handler.addFilter(RateLimitedFilter())
    sys.excepthook = lambda _, error, __: _uncaught(error)
    threading.excepthook = lambda ended: _uncaught(ended.exc_value)


def _uncaught(error: BaseException | None) -> None:
    log.critical("a defect of Postdate ended this thread", exc_info=error)
