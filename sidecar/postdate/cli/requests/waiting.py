"""Waits for the verdict on a request that a command has sent, or for the end of its message.

The command reads the end offset of the verdicts topic or the dispatch log *before* it produces the request, so it
cannot miss the record. From this offset it reads with read_committed, so it does not report the result of an aborted
transaction. The dispatch log records the fate of every request, whatever the value of the setting `verdicts`. A
negative result is printed like any other, and the exit code is 1.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import closing
from dataclasses import dataclass

import click

from postdate.cli import limits
from postdate.cli.commands import fail, warn
from postdate.cli.options import Command, duration_ms
from postdate.kafka.interface import Admin, Isolation, Kafka, Partition, Record
from postdate.sidecar.cluster.producing import DeliveryReport, UnsentRequest, produce
from postdate.sidecar.config.settings import Config
from postdate.sidecar.errors import ConfigError
from postdate.wire.dispatch_log import DEAD, DELIVERED, FINAL, ChosenFate, Fate, SeriesFate, SurvivorFate, decode_record
from postdate.wire.errors import FormatError
from postdate.wire.origins import format_origin
from postdate.wire.requests.request import Request
from postdate.wire.topics import OwnTopics
from postdate.wire.values.durations import format_duration
from postdate.wire.verdicts import Verdict, VerdictRecord, decode_verdict

_READ_RECORDS_MAX = 1_000
_READ_TIMEOUT_S = 1.0

_DEAD_LETTER_REASON = "its dead letter has the reason (postdate dead-letters list)"
_WHY_NOT: Mapping[Verdict, str] = {
    Verdict.TOO_LATE: "the message had already been delivered, or had become a dead letter",
    Verdict.NOT_FOUND: "no such message was pending in this partition: it never existed, or was cancelled before. An id"
    " is found only if its request is in the partition that murmur2 chooses for the id; an origin is always found",
    Verdict.REJECTED: f"the request was refused; {_DEAD_LETTER_REASON}",
    Verdict.CANCELLED: "the message was cancelled and will not be delivered",
    Verdict.REPLACED: "the message was replaced by a later one of the same id and will not be delivered",
    Verdict.DEAD: f"the message could not be delivered; {_DEAD_LETTER_REASON}",
}


@dataclass(frozen=True, slots=True)
class Waiting:
    """The wait of a command for a verdict. `wanted`: True if the command waits; `timeout_ms`: the longest wait."""

    wanted: bool
    timeout_ms: int


def verdict_options(command: Command) -> Command:
    """Adds --wait-verdict and --timeout; `waiting` combines their values."""
    return _verdict_options(command, "Longest wait. [30s]")


def outcome_options(command: Command) -> Command:
    """Adds --wait-delivery and the options of `verdict_options`."""
    text = "Longest wait: for a verdict [30s]; for the delivery, counted from the due time [30s and the retry budget]."
    text_of_delivery = "Wait for the delivery and print its lateness; exit code 1 if the message is not delivered."
    return click.option("--wait-delivery", is_flag=True, help=text_of_delivery)(_verdict_options(command, text))


def _verdict_options(command: Command, timeout: str) -> Command:
    for option in (
        click.option("--timeout", type=duration_ms, metavar="DURATION", help=timeout),
        click.option(
            "--wait-verdict", is_flag=True, help="Wait for the verdict and print it; exit code 1 if it is negative."
        ),
    ):
        command = option(command)
    return command


def waiting(wait_verdict: bool, timeout: int | None) -> Waiting:
    """Combines --wait-verdict and --timeout (ms). Raises UsageError if --timeout is given and the command does not
    wait."""
    if timeout is None:
        return Waiting(wait_verdict, limits.VERDICT_TIMEOUT_MS)
    if not wait_verdict:
        raise click.UsageError("--timeout needs --wait-verdict or --wait-delivery")
    return Waiting(True, timeout)


def require_verdicts(waiting: Waiting, config: Config, requests: str, existing: frozenset[str]) -> None:
    """Raises ConfigError if the command waits for a verdict and none can arrive. Call it before the request is
    produced."""
    if not waiting.wanted:
        return
    if config.request_topic(requests).verdicts == "none":
        raise ConfigError(f"no verdict would arrive: {requests} is configured with verdicts = none")
    topic = OwnTopics.of(requests).verdicts
    if topic not in existing:
        servers = config.kafka.bootstrap_servers
        raise ConfigError(
            f"no verdict would arrive, since topic {topic} does not exist: postdate topics create -b {servers}"
            f" --requests {requests} --allow-existing"
        )


@dataclass(frozen=True, slots=True)
class CheckedRequest:
    """A request that the sidecar will accept, its partition, and the clients that send it and wait for its verdict."""

    kafka: Kafka
    admin: Admin
    part: Partition
    record: UnsentRequest


def send_and_report(
    request: CheckedRequest,
    waiting: Waiting,
    output: str,
    facts: Callable[[DeliveryReport], Mapping[str, object]],
) -> DeliveryReport:
    """Produces one request, and prints its origin and, if requested, its verdict. Returns the broker's acknowledgement.

    Ends the process with code 1 if the verdict is negative or does not arrive. `facts` returns further fields of the
    JSON object.
    """
    kafka, part = request.kafka, request.part
    verdicts = Partition(OwnTopics.of(part.topic).verdicts, part.index)
    from_offset = request.admin.end_offsets([verdicts], Isolation.READ_UNCOMMITTED)[verdicts] if waiting.wanted else -1
    delivery = produce(kafka, part, request.record)
    origin = format_origin(part.topic, part.index, delivery.offset).decode()
    if output == "text":
        click.echo(origin)
    fields: dict[str, object] = {"origin": origin, **facts(delivery)}
    answer: VerdictRecord | None = None
    try:
        if waiting.wanted:
            fields |= {"verdict": None, "of": None, "by": None, "verdict_ms": None}
            answer = first_verdict(kafka, verdicts, from_offset, origin, waiting.timeout_ms)
        if answer is not None:
            fields |= {"verdict": answer.verdict, "of": answer.of, "by": answer.by, "verdict_ms": answer.at_ms}
    finally:  # the request exists even if the wait fails
        if output == "json":
            click.echo(json.dumps(fields))
    if answer is not None and output == "text":
        named = answer.of or answer.by
        click.echo(f"{answer.verdict} {named}" if named else answer.verdict)
    if not waiting.wanted:
        return delivery
    if answer is None:
        fail(_no_verdict(part.topic, waiting, request.record))
    elif not is_positive(answer):
        fail(f"{answer.verdict}: {_WHY_NOT[answer.verdict]}")
    return delivery


def first_verdict(
    kafka: Kafka, part: Partition, from_offset: int, origin: str, timeout_ms: int
) -> VerdictRecord | None:
    """Returns the first verdict on the request `origin` at or after `from_offset`; None after the time-out."""
    with closing(committed_records(kafka, part, from_offset, timeout_ms)) as records:
        for record in records:
            answer = _decoded(part, record.offset, record.value)
            if answer is not None and answer.origin == origin:
                return answer
    return None


def committed_records(kafka: Kafka, part: Partition, start: int, timeout_ms: int) -> Generator[Record]:
    """Yields the committed records of a partition from an offset on, until the time-out."""
    deadline = time.monotonic() + timeout_ms / 1000
    with closing(kafka.log_reader(part, start, Isolation.READ_COMMITTED)) as reader:
        while (left_s := deadline - time.monotonic()) > 0:
            yield from reader.read(_READ_RECORDS_MAX, min(left_s, _READ_TIMEOUT_S))


def is_positive(answer: VerdictRecord) -> bool:
    """True if the request had its effect, whether it is a control or schedules a message.

    `replaced` with the origin of another entry (`of`) means that this request replaced that entry. Without this origin
    it means that this request was replaced. The same applies to `cancelled`. `kept` and `dropped` are positive too,
    since the request itself set these rules.
    """
    match answer.verdict:
        case Verdict.ACCEPTED | Verdict.DELIVERED | Verdict.RESCHEDULED | Verdict.APPLIED:
            return True
        case Verdict.PAUSED | Verdict.RESUMED | Verdict.TRIGGERED | Verdict.BACKFILLED:
            return True
        case Verdict.KEPT | Verdict.DROPPED:
            return True
        case Verdict.CANCELLED | Verdict.REPLACED:
            return answer.of is not None
        case _:
            return False


def _decoded(part: Partition, offset: int, value: bytes | None) -> VerdictRecord | None:
    try:
        return decode_verdict(value)
    except FormatError as error:
        warn(f"{part.topic}/{part.index}/{offset}: {error}")
        return None


def _no_verdict(requests: str, waiting: Waiting, record: UnsentRequest) -> str:
    text = (
        f"no verdict within {format_duration(waiting.timeout_ms)}; the request is in {requests}, and will be carried"
        f" out unless it is refused (postdate dead-letters list). Check that a sidecar serves {requests} (postdate"
        " run), and that its setting `verdicts` is not none"
    )
    schedules = not any(name == "postdate-action" for name, _ in record.headers)
    return text + (
        ". With `control`, a message that replaces no other gets no verdict; with `all`, it gets one when it is stored"
        " and one when it has ended"
        if schedules
        else ""
    )


@dataclass(frozen=True, slots=True)
class FinalFate:
    """The final fate of a request. `ended_ms`: the broker's timestamp of the record with this fate. `first_due_ms`: the
    first due time that the fate contains. `chosen_ms`: the chosen time; -1 if the request has no window. `survivor`:
    the offset of the request whose message was preferred; -1 if there is none."""

    fate: str
    ended_ms: int
    first_due_ms: int = 0
    chosen_ms: int = -1
    survivor: int = -1


class FateWatch:
    """A reader of the dispatch log of one partition, from its present end on. Create it before the request is
    produced."""

    def __init__(self, kafka: Kafka, admin: Admin, requests: Partition) -> None:
        self._kafka = kafka
        self._requests = requests
        self._log = Partition(OwnTopics.of(requests.topic).dispatch_log, requests.index)
        self._from_offset = admin.end_offsets([self._log], Isolation.READ_UNCOMMITTED)[self._log]

    def report(self, delivery: DeliveryReport, request: Request | None, timeout_ms: int, output: str) -> None:
        """Waits until the request has ended, and prints its fate. Waits for at most `timeout_ms` after the end of its
        window (without one, its due time), or after its timestamp if that is later or `request` is None. Ends the
        process with 1 if the request does not end in this time, or ends without a delivery. `request`: the result of
        `request_options.parsed`.

        Lateness is defined as in the metric `postdate_lateness_seconds`. It counts from the due time or the chosen
        time, or from the timestamp of the request if that is later.
        """
        due_ms, window_ms = (request.due_ms, request.window_ms) if request is not None else (0, 0)
        origin = format_origin(self._requests.topic, self._requests.index, delivery.offset).decode()
        latest_ms = max(due_ms + window_ms, delivery.timestamp_ms)
        end = self.wait(delivery.offset, latest_ms - delivery.timestamp_ms + timeout_ms)
        if end is None:
            fail(
                f"{origin} has not ended within {format_duration(timeout_ms)} of its time. The request exists; check"
                f" that a sidecar serves {self._requests.topic}, and that its shard is not halted"
            )
            return
        if request is None or request.latest_ms:  # only the sidecar knows the policy, or the start of the series
            due_ms = end.first_due_ms
        late_ms = end.ended_ms - max(due_ms, end.chosen_ms, delivery.timestamp_ms)
        survivor = ""
        if end.survivor >= 0:
            survivor = format_origin(self._requests.topic, self._requests.index, end.survivor).decode()
        if output == "json":
            fields = {"origin": origin, "fate": end.fate, "ended_ms": end.ended_ms, "late_ms": late_ms}
            click.echo(json.dumps(fields | ({"survivor": survivor} if survivor else {})))
        else:
            side = "after" if late_ms >= 0 else "before"
            click.echo(f"{end.fate} {format_duration(abs(late_ms))} {side} its time")
        if survivor:
            fail(f"{end.fate}: the message was not delivered, in favour of {survivor}, which has the same id")
        elif end.fate != DELIVERED:
            fail(
                f"{end.fate}: the message was not delivered" + (f"; {_DEAD_LETTER_REASON}" if end.fate == DEAD else "")
            )

    def wait(self, offset: int, timeout_ms: int) -> FinalFate | None:
        """Returns the final fate of the request at `offset`; None after the time-out."""
        with closing(committed_records(self._kafka, self._log, self._from_offset, timeout_ms)) as records:
            for record in records:
                fate = self._fate(record.value, record.offset, offset)
                if fate is not None:
                    chosen_ms = fate.chosen_ms if isinstance(fate, ChosenFate) else -1
                    survivor = fate.survivor if isinstance(fate, SurvivorFate | SeriesFate) else -1
                    return FinalFate(fate.name, record.timestamp_ms, fate.first_due_ms, chosen_ms, survivor)
        return None

    def _fate(self, value: bytes | None, log_offset: int, offset: int) -> Fate | None:
        try:
            fates = decode_record(value).fates
        except FormatError as error:
            warn(f"{self._log.topic}/{self._log.index}/{log_offset}: {error}")
            return None
        return next((fate for fate in fates if fate.offset == offset and fate.name in FINAL), None)
