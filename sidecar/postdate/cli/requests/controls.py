"""`postdate cancel`, `postdate reschedule` and `postdate deliver`: change a message while it is pending. `postdate
schedule pause`, `resume`, `cancel`, `trigger` and `backfill` do the same for a recurring schedule.

A control must follow its request in the same partition. With --origin, this is the partition of the origin. With --id,
the partition follows from the murmur2 hash of the id and the partition count of the live topic.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import click

from postdate.cli.options import Command, Loader, as_bytes, configured, duration_text, now_ms, output_option, time_text
from postdate.cli.request_options import check, due_ms, the_request_topic, the_time, time_options
from postdate.cli.requests.selection import control_selected, is_bulk, selector_options
from postdate.cli.requests.waiting import CheckedRequest, require_verdicts, send_and_report, verdict_options, waiting
from postdate.kafka.interface import Partition
from postdate.sidecar.cluster.producing import DeliveryReport, UnsentRequest, accepted, look_up, partition_of
from postdate.sidecar.errors import ConfigError
from postdate.wire import headers as names
from postdate.wire.headers import Headers
from postdate.wire.origins import parse_origin
from postdate.wire.topics import DEFAULT_REQUESTS, OwnTopics
from postdate.wire.values.texts import counted


def _named_options(noun: str, printed_by: str) -> Callable[[Command], Command]:
    """Returns a decorator that adds --requests, --id and --origin; `ControlTarget.of` combines their values.

    `noun`: the kind of request that the options name; `printed_by`: the command that prints its origin.
    """

    def add(command: Command) -> Command:
        for option in (
            click.option("--origin", metavar="ORIGIN", help=f"Origin of the {noun}, as `{printed_by}` prints it."),
            click.option("--id", "request_id", metavar="ID", help=f"Id of the {noun}."),
            click.option(
                "--requests",
                metavar="TOPIC",
                help=f"Request topic. [that of the origin, or {DEFAULT_REQUESTS}]",
            ),
        ):
            command = option(command)
        return command

    return add


message_named = _named_options("message", "postdate send")
schedule_named = _named_options("schedule", "postdate schedule create")


@dataclass(frozen=True, slots=True)
class ControlTarget:
    """The request on which a control acts, by its id or its origin."""

    id: bytes | None
    origin: bytes | None
    requests: str
    """The request topic; empty: the configured one."""
    partition: int

    @classmethod
    def of(cls, requests: str | None, request_id: str | None, origin: str | None) -> ControlTarget:
        """Combines the options. Raises UsageError unless exactly one of id and origin is given, and for an origin that
        is malformed or not on the topic `requests`."""
        if (request_id is None) == (origin is None):
            raise click.UsageError("give one of --id and --origin")
        if origin is None:
            return cls(as_bytes(request_id), None, requests or "", -1)
        text = as_bytes(origin) or b""
        try:
            topic, partition, _ = parse_origin(text)
        except ValueError as error:
            raise click.UsageError(f"--origin {origin!r} {error}") from None
        if requests not in (None, topic):
            raise click.UsageError(f"--origin names a request on {topic}, --requests is {requests}")
        return cls(None, text, topic, partition)

    def header(self) -> tuple[str, bytes | None]:
        """Returns the header that names the request."""
        return (names.ID, self.id) if self.origin is None else (names.ORIGIN, self.origin)

    def partition_among(self, count: int) -> int:
        """Returns the partition of the control if the topic has `count` partitions. Raises ConfigError if the partition
        of the origin does not exist."""
        if self.origin is None:
            return partition_of(self.id, count)
        if self.partition >= count:
            raise ConfigError(f"{self.requests} has {counted(count, 'partition')}: {self.origin.decode()} cannot exist")
        return self.partition


@click.command(short_help="Cancel one pending message, or all that match selectors.")
@configured
@message_named
@selector_options
@verdict_options
@output_option
def cancel(loader: Loader, **options: Any) -> None:
    """Cancel a pending message, and print the origin of the cancel request.

    --wait-verdict also prints the verdict and the origin of the message. `cancelled` promises that the message will
    never be delivered. `too-late` and `not-found` end with exit code 1.

    \b
      postdate cancel -b localhost:9092 --id order-9 --wait-verdict

    With selectors, cancel every pending message that matches all of them. One control goes to each partition. Its
    verdict, `applied`, has the number of cancelled messages. --dry-run only prints the numbers by shard and target.

    \b
      postdate cancel -b localhost:9092 --target reminders --until 2030-01-31T10:00:00Z --dry-run
      postdate cancel -b localhost:9092 --id-prefix customer-7/ --wait-verdict
    """
    if is_bulk(options):
        control_selected(loader, [(names.ACTION, b"cancel")], options)
    else:
        _control(loader, b"cancel", [], options)


@click.command(short_help="Move one pending message, or all that match selectors, to another time.")
@configured
@message_named
@time_options
@click.option(
    "--by",
    type=duration_text,
    metavar="DURATION",
    help="With selectors: move each message by this time; -2h: to an earlier one.",
)
@selector_options
@click.option(
    "--grace",
    type=duration_text,
    metavar="DURATION",
    help="If the message would be later than this, write a dead letter instead.",
)
@verdict_options
@output_option
def reschedule(
    loader: Loader,
    grace: str | None,
    by: str | None,
    at: int | None,
    delay: str | None,
    level: str | None,
    **options: Any,
) -> None:
    """Move a pending message to another time, and print the origin of the reschedule request.

    The content of the message does not change. A delay or level counts from now. --wait-verdict also prints the verdict
    and the origin of the message; `too-late` and `not-found` end with exit code 1.

    \b
      postdate reschedule -b localhost:9092 --id order-9 --delay 2h --wait-verdict
      postdate reschedule -b localhost:9092 --target reminders --by 2h --dry-run
    """
    if is_bulk(options):
        if grace is not None:
            raise click.UsageError("--grace needs --id or --origin")
        is_timed = (at, delay, level) != (None, None, None)
        if is_timed == (by is not None):
            raise click.UsageError("give one time, or --by")
        when = the_time({"at": at, "delay": delay, "level": level}) if is_timed else [(names.BY, as_bytes(by))]
        control_selected(loader, [(names.ACTION, b"reschedule"), *when], options)
        return
    if by is not None:
        raise click.UsageError("--by needs a selector: --target, --id-prefix, --key, --from or --until")
    headers = the_time({"at": at, "delay": delay, "level": level})
    if grace is not None:
        headers.append((names.GRACE, as_bytes(grace)))
    _control(loader, b"reschedule", headers, options)


@click.command(short_help="Deliver one pending message, or all that match selectors, now.")
@configured
@message_named
@selector_options
@verdict_options
@output_option
def deliver(loader: Loader, **options: Any) -> None:
    """Move a pending message to the present time, and print the origin of the reschedule request.

    The new due time is the timestamp of that request. --wait-verdict also prints the verdict, `rescheduled`, and the
    origin of the message; `too-late` and `not-found` end with exit code 1.

    \b
      postdate deliver -b localhost:9092 --id order-9 --wait-verdict
      postdate deliver -b localhost:9092 --target reminders --until 2030-01-31T10:00:00Z --dry-run
    """
    if is_bulk(options):
        control_selected(loader, [(names.ACTION, b"reschedule"), (names.DELAY, b"0s")], options)
    else:
        _control(loader, b"reschedule", [(names.DELAY, b"0s")], options)


@click.command(short_help="Skip the times of a schedule until it is resumed.")
@configured
@schedule_named
@verdict_options
@output_option
def pause(loader: Loader, **options: Any) -> None:
    """Pause a recurring schedule, and print the origin of the request.

    From the timestamp of this request on, its nominal times are skipped until a resume. --wait-verdict also prints the
    verdict, `paused`, and the origin of the schedule; any other verdict ends with exit code 1.

    \b
      postdate schedule pause -b localhost:9092 --id nightly --wait-verdict
    """
    _control(loader, b"pause", [], options)


@click.command(short_help="Resume a paused schedule.")
@configured
@schedule_named
@verdict_options
@output_option
def resume(loader: Loader, **options: Any) -> None:
    """Resume a recurring schedule, and print the origin of the request.

    Nominal times from the timestamp of this request on are delivered again; earlier ones in the pause are recorded as
    skipped. --wait-verdict also prints the verdict, `resumed`, and the origin of the schedule; any other verdict ends
    with exit code 1.

    \b
      postdate schedule resume -b localhost:9092 --id nightly --wait-verdict
    """
    _control(loader, b"resume", [], options)


@click.command("cancel", short_help="Cancel a recurring schedule.")
@configured
@schedule_named
@verdict_options
@output_option
def end(loader: Loader, **options: Any) -> None:
    """Cancel a recurring schedule, and print the origin of the request.

    --wait-verdict also prints the verdict and the origin of the schedule. `cancelled` promises that no further
    occurrence will be delivered. `too-late` and `not-found` end with exit code 1. To cancel several schedules at once,
    use `postdate cancel` with selectors.

    \b
      postdate schedule cancel -b localhost:9092 --id nightly --wait-verdict
    """
    _control(loader, b"cancel", [], options)


@click.command(short_help="Deliver a schedule once more, now.")
@configured
@schedule_named
@verdict_options
@output_option
def trigger(loader: Loader, **options: Any) -> None:
    """Deliver the message of a recurring schedule once more, and print the origin of the request.

    The extra delivery is due at the timestamp of this request, also while the schedule is paused. It has the header
    postdate-extra and no occurrence number. --wait-verdict also prints the verdict, `triggered`, and the origin of the
    schedule; any other verdict ends with exit code 1.

    \b
      postdate schedule trigger -b localhost:9092 --id nightly --wait-verdict
    """
    _control(loader, b"trigger", [], options)


@click.command(short_help="Deliver once more for each nominal time in a past range.")
@configured
@schedule_named
@click.option(
    "--start",
    type=time_text,
    required=True,
    metavar="TIME",
    help="The first possible nominal time: RFC 3339, epoch milliseconds, now, or -2h (ago).",
)
@click.option(
    "--end", type=time_text, required=True, metavar="TIME", help="The last possible one. TIME as for --start."
)
@verdict_options
@output_option
def backfill(loader: Loader, start: str, end: str, **options: Any) -> None:
    """Deliver the message of a recurring schedule once more for each of its nominal times from --start to --end, both
    included, and print the origin of the request.

    The times may lie before the schedule was created, or in a pause. Each extra delivery has the header postdate-extra
    and no occurrence number. --wait-verdict also prints the verdict, `backfilled`, and the origin of the schedule; any
    other verdict ends with exit code 1.

    \b
      postdate schedule backfill -b localhost:9092 --id nightly --start 2026-10-01T00:00:00Z --end now --wait-verdict
    """
    _control(loader, b"backfill", [(names.START, as_bytes(start)), (names.END, as_bytes(end))], options)


def _control(loader: Loader, action: bytes, headers: Headers, options: Mapping[str, Any]) -> None:
    """Sends a control with these headers, and reports it. `options`: the options that all controls share."""
    from postdate.sidecar.cluster.connection import admin_of, kafka_of
    from postdate.sidecar.ingest.request_rules import rules_of

    control_target = ControlTarget.of(options["requests"], options["request_id"], options["origin"])
    wait = waiting(options["wait_verdict"], options["timeout"])
    config = loader({"request_topics": (control_target.requests,) if control_target.requests else ()}).config
    topic = the_request_topic(config)
    record = UnsentRequest(control_target.id, None, [(names.ACTION, action), control_target.header(), *headers])
    check(config, topic, record, max(control_target.partition, 0))
    kafka = kafka_of(config)
    with admin_of(kafka) as admin:
        live = look_up(admin, topic, config.kafka.bootstrap_servers, (OwnTopics.of(topic).verdicts,))
        require_verdicts(wait, config, topic, live.existing)
        rules = rules_of(config, topic, live.retention_ms)
        part = Partition(topic, control_target.partition_among(live.partitions))
        accepted(rules, record, part.index, now_ms())

        def facts(delivery: DeliveryReport) -> Mapping[str, object]:
            fields: dict[str, object] = {"action": action.decode(), "sent_ms": delivery.timestamp_ms}
            if action == b"reschedule":
                fields["due_ms"] = due_ms(rules, record, part.index, delivery)
            return fields

        send_and_report(CheckedRequest(kafka, admin, part, record), wait, options["output"], facts)
