"""Reads the named retry policies of the sidecars from the last record of a dispatch log. Every record repeats them."""

from __future__ import annotations

import time
from contextlib import closing

from postdate.cli import limits
from postdate.kafka.errors import KafkaFault
from postdate.kafka.interface import Admin, Isolation, Kafka, Partition
from postdate.sidecar.errors import ConfigError
from postdate.wire.dispatch_log import PolicyRow, decode_record
from postdate.wire.errors import FormatError
from postdate.wire.limits import INTEGER_END
from postdate.wire.requests.request import Request
from postdate.wire.requests.retry_policies import NamedPolicies
from postdate.wire.requests.returns import NO_POLICIES


def policies_for(kafka: Kafka, admin: Admin, part: Partition, log: Partition, request: Request) -> NamedPolicies:
    """Returns the named policies of the shard `part`, from its dispatch log `log`.

    Returns no policies if the request names none, or if no record at the end of the log can be read. Raises ConfigError
    if the log does not have the named policy, since a sidecar would refuse the request. Cost: reads the end of the log.
    """
    name = request.retry.policy if request.retry is not None else None
    if not isinstance(name, str):
        return NO_POLICIES
    try:
        rows = _last_rows(kafka, admin, log)
    except (KafkaFault, FormatError):
        rows = None
    if rows is None:
        return NO_POLICIES
    policies = NamedPolicies(rows)
    if policies.find(name, INTEGER_END) is None:
        raise ConfigError(f"this request would be refused: bad-retry: {part.topic} has no retry policy {name!r}")
    return policies


def _last_rows(kafka: Kafka, admin: Admin, log: Partition) -> list[PolicyRow] | None:
    """Returns the policies in the last committed record of a dispatch log; None if the last LOG_TAIL_OFFSETS offsets
    have no record."""
    start = admin.start_offsets([log])[log]
    end = admin.end_offsets([log], Isolation.READ_COMMITTED)[log]
    first, rows = max(start, end - limits.LOG_TAIL_OFFSETS), None
    if first >= end:
        return None
    deadline = time.monotonic() + limits.LOG_TAIL_TIMEOUT_S
    with closing(kafka.log_reader(log, first, Isolation.READ_COMMITTED)) as reader:
        while reader.position() < end and (left_s := deadline - time.monotonic()) > 0:
            for record in reader.read(limits.LOG_TAIL_OFFSETS, left_s):
                rows = decode_record(record.value).policies or []
    return rows
