"""Waits until a message that a command has sent has ended, by reading the dispatch log.

The dispatch log records the fate of every request, whatever the setting `verdicts`. The command reads its end offset
*before* it produces the request, so it cannot miss the fate. From there it reads with read_committed, so the fate is
final.
"""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import dataclass

import click

from postdate.cli.commands import fail, warn
from postdate.cli.verdict_waiting import committed_records
from postdate.kafka.interface import Admin, Isolation, Kafka, Partition
from postdate.sidecar.cluster.producing import Receipt
from postdate.wire.dispatch_log import DELIVERED, FINAL, ChosenFate, Fate, decode_record
from postdate.wire.durations import format_duration
from postdate.wire.errors import FormatError
from postdate.wire.origins import format_origin
from postdate.wire.requests import Request
from postdate.wire.topics import OwnTopics


@dataclass(frozen=True, slots=True)
class FinalFate:
    """The final fate of a request, the broker's timestamp of the record with this fate, and the chosen time; -1: it has
    no window."""

    fate: str
    ended_ms: int
    chosen_ms: int = -1


class FateWatch:
    """Watches the dispatch log of one partition from its present end. Create it before the request is produced."""

    def __init__(self, kafka: Kafka, admin: Admin, requests: Partition) -> None:
        self._kafka = kafka
        self._requests = requests
        self._log = Partition(OwnTopics.of(requests.topic).dispatch_log, requests.index)
        self._behind = admin.end_offsets([self._log], Isolation.READ_UNCOMMITTED)[self._log]

    def report(self, receipt: Receipt, request: Request | None, timeout_ms: int, output: str) -> None:
        """Wait until the request has ended, at most `timeout_ms` after its due time or window, and print its fate. Ends
        the process with 1 if it was not delivered in time. `request` None: it is refused, so it ends at once.

        Lateness counts as in `postdate_lateness_seconds`: from the due time or the chosen time, or from the timestamp
        of the request if that is later.
        """
        due_ms, window_ms = (request.due_ms, request.window_ms) if request is not None else (0, 0)
        origin = format_origin(self._requests.topic, self._requests.index, receipt.offset).decode()
        since_ms = max(due_ms, receipt.timestamp_ms)
        latest_ms = max(due_ms + window_ms, receipt.timestamp_ms)
        end = self.wait(receipt.offset, latest_ms - receipt.timestamp_ms + timeout_ms)
        if end is None:
            fail(
                f"{origin} has not ended within {format_duration(timeout_ms)} of its time. The request exists; check"
                f" that a sidecar serves {self._requests.topic}, and that its shard is not halted"
            )
            return
        late_ms = end.ended_ms - max(since_ms, end.chosen_ms)
        if output == "json":
            fields = {"origin": origin, "fate": end.fate, "ended_ms": end.ended_ms, "late_ms": late_ms}
            click.echo(json.dumps(fields))
        else:
            side = "after" if late_ms >= 0 else "before"
            click.echo(f"{end.fate} {format_duration(abs(late_ms))} {side} its time")
        if end.fate != DELIVERED:
            fail(f"{end.fate}: the message was not delivered; its dead letter has the reason")

    def wait(self, offset: int, timeout_ms: int) -> FinalFate | None:
        """The final fate of the request at `offset`; None after the time-out."""
        with closing(committed_records(self._kafka, self._log, self._behind, timeout_ms)) as records:
            for record in records:
                fate = self._fate(record.value, record.offset, offset)
                if fate is not None:
                    chosen_ms = fate.chosen_ms if isinstance(fate, ChosenFate) else -1
                    return FinalFate(fate.name, record.timestamp_ms, chosen_ms)
        return None

    def _fate(self, value: bytes | None, at: int, offset: int) -> Fate | None:
        try:
            fates = decode_record(value).fates
        except FormatError as error:
            warn(f"{self._log.topic}/{self._log.index}/{at}: {error}")
            return None
        return next((fate for fate in fates if fate.offset == offset and fate.name in FINAL), None)
