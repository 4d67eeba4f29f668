"""`postdate send`: one request, checked here by the rules of the sidecar, then produced as any client would.

With `--id` the id becomes the record's key and `postdate-key` carries the message's own, so that a later cancel with
the same id finds the partition. Values are bytes: what the shell passes, or standard input, unchanged.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import click

from postdate.connectors.kafka.errors import KafkaFault
from postdate.connectors.kafka.seam import Admin, Kafka, Partition
from postdate.connectors.wire import headers as names
from postdate.connectors.wire.errors import RequestRefused
from postdate.connectors.wire.headers import Headers
from postdate.connectors.wire.murmur2 import partition_for
from postdate.connectors.wire.origins import format_origin
from postdate.connectors.wire.requests import Request, RequestRules, parse_request
from postdate.sidecar import limits
from postdate.sidecar.cli.commands import warn
from postdate.sidecar.cli.options import Loader, as_bytes, configured, header_pair, output_option
from postdate.sidecar.errors import ConfigError, TransientError

STDIN = "-"
RETENTION_MS = "retention.ms"


@dataclass(frozen=True, slots=True)
class Draft:
    """A request record before it is produced."""

    key: bytes | None
    value: bytes | None
    headers: Headers


@dataclass(slots=True)
class Receipt:
    """What the broker said of the record; its delivery report, served inside flush, fills it in."""

    reported: bool = False
    fault: KafkaFault | None = None
    offset: int = -1
    timestamp_ms: int = -1

    def note(self, fault: KafkaFault | None, offset: int, timestamp_ms: int) -> None:
        """Take the delivery report."""
        self.reported, self.fault, self.offset, self.timestamp_ms = True, fault, offset, timestamp_ms


@click.command(short_help="Ask for one message to be delivered later.")
@configured
@click.option("--requests", default=None, metavar="TOPIC", help="Request topic. [postdate.requests]")
@click.option("--topic", required=True, metavar="TOPIC", help="Where the message is to go.")
@click.option("--key", help="Key of the message; absent: a null key.")
@click.option("--value", help="Value of the message; -: standard input; absent: a null value.")
@click.option(
    "-H",
    "--header",
    "headers",
    type=header_pair,
    multiple=True,
    metavar="NAME=VALUE",
    help="Header of the message; repeatable; NAME alone: a null value.",
)
@click.option("--at", metavar="TIME", help="When: epoch milliseconds, or RFC 3339 such as 2030-01-31T08:00:00Z.")
@click.option("--delay", metavar="DURATION", help="How much later: 1500ms, 90s, 2h30m, 1d12h, PT5M.")
@click.option("--level", metavar="N", help="Delay level; 0: at once.")
@click.option("--id", "request_id", metavar="ID", help="Your id: replaces a pending request of the same id.")
@click.option("--partition", metavar="N", help="Partition of the target; absent: by the key, as Java clients do.")
@click.option("--grace", metavar="DURATION", help="Dead-letter the message instead when it is later than this.")
@output_option
def send(loader: Loader, requests: str | None, output: str, **message: Any) -> None:
    """Ask for one message to be delivered later, and print the request's origin.

    The request is checked first by the rules of the sidecar: what it would refuse is not sent (exit code 2).

    \b
      postdate send -b localhost:9092 --topic orders --key 42 --value hello --delay 5s
    """
    from postdate.sidecar.cluster import admin_of, kafka_of
    from postdate.sidecar.request_rules import rules_of

    draft = draft_of(message)
    config = loader({"request_topics": (requests,) if requests else ()}).config
    if len(config.request_topics) > 1:
        raise ConfigError(f"--requests is needed: {', '.join(config.request_topic_names)} are configured")
    name = config.request_topic_names[0]
    accepted(rules_of(config, name), draft, 0, _now_ms())
    kafka = kafka_of(config)
    with admin_of(kafka) as admin:
        count, retention_ms = _ask(admin, name, str(message["topic"]), config.kafka.bootstrap_servers)
    rules = rules_of(config, name, retention_ms)
    partition = partition_of(draft.key, count)
    accepted(rules, draft, partition, _now_ms())
    receipt = _produce(kafka, Partition(name, partition), draft)
    origin = format_origin(name, partition, receipt.offset).decode()
    if output == "text":
        click.echo(origin)
        return
    due_ms = accepted(rules, draft, partition, receipt.timestamp_ms).due_ms
    sent = {"origin": origin, "topic": message["topic"], "due_ms": due_ms, "sent_ms": receipt.timestamp_ms}
    click.echo(json.dumps(sent))


def draft_of(message: Mapping[str, Any]) -> Draft:
    """The record that the options of `send` describe. Raises UsageError: not exactly one of --at, --delay, --level."""
    if sum(message[time] is not None for time in ("at", "delay", "level")) != 1:
        raise click.UsageError("give exactly one of --at, --delay, --level")
    headers: Headers = list(message["headers"])
    own = {
        names.TOPIC: message["topic"],
        names.AT: message["at"],
        names.DELAY: message["delay"],
        names.LEVEL: message["level"],
        names.ID: message["request_id"],
        names.PARTITION: message["partition"],
        names.GRACE: message["grace"],
    }
    headers += [(name, as_bytes(value)) for name, value in own.items() if value is not None]
    key = as_bytes(message["key"])
    if message["request_id"] is not None:
        headers.append((names.KEY, key))
        key = as_bytes(message["request_id"])
    value = message["value"]
    return Draft(key, sys.stdin.buffer.read() if value == STDIN else as_bytes(value), headers)


def partition_of(key: bytes | None, count: int) -> int:
    """The partition of the request topic for a record with this key: murmur2 as Java clients, any for a null key."""
    return random.randrange(count) if key is None else partition_for(key, count)  # noqa: S311


def accepted(rules: RequestRules, draft: Draft, partition: int, timestamp_ms: int) -> Request:
    """The request as the sidecar will read it. Raises ConfigError: it would be refused; nothing is sent."""
    try:
        return parse_request(rules, partition, timestamp_ms, draft.key, draft.headers)
    except RequestRefused as refusal:
        raise ConfigError(f"this request would be refused: {refusal}") from refusal


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _ask(admin: Admin, requests: str, target: str, bootstrap_servers: str) -> tuple[int, int]:
    """Partitions and retention of the request topic; warns of a target that does not exist.

    Raises ConfigError: the request topic does not exist.
    """
    live = admin.describe([requests, target], [RETENTION_MS])
    if requests not in live:
        raise ConfigError(
            f"request topic {requests} does not exist: postdate topics create -b {bootstrap_servers}"
            f" --requests {requests}"
        )
    if target not in live:
        warn(f"target topic {target} does not exist now; without it the message becomes a dead letter when it is due")
    return len(live[requests].partitions), int(live[requests].config[RETENTION_MS])


def _produce(kafka: Kafka, part: Partition, draft: Draft) -> Receipt:
    """Produce the record and wait for its acknowledgement. Raises the fault that the broker reports, or TransientError:
    no report in time, so it is not known whether the request exists."""
    receipt = Receipt()
    producer = kafka.plain_producer()
    try:
        producer.produce(part.topic, draft.value, draft.key, draft.headers, part.index, receipt.note)
        producer.flush(limits.COMMAND_TIMEOUT_S)
    finally:
        producer.destroy()
    if receipt.fault is not None:
        raise receipt.fault
    if not receipt.reported:
        raise TransientError(
            f"no answer within {limits.COMMAND_TIMEOUT_S:.0f} s: the request may or may not be in {part.topic}"
        )
    return receipt
