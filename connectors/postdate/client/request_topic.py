"""Requests to one request topic: each is built, given its partition, and read once by the sidecar's own rules.

The rule that is hard to keep by hand: ids belong to one *request partition*, so schedule, cancel and reschedule of an
id must meet in the same one. Here the partition is always computed from the id itself (murmur2, as Java clients hash
keys), the id is the record's key, and `postdate-key` carries the key of the message. A control that names an origin
goes to the origin's partition. So a caller cannot send one to a place where it finds nothing.

Invariant: what is returned, `parse_request` accepts. Only what the sidecar alone knows can still refuse it: its
allow-list and levels, the horizon of a topic that keeps its requests for a shorter time, and the target itself.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from postdate.client.errors import RequestInvalid
from postdate.client.record import RequestRecord
from postdate.client.times import grace_header, length_ms, time_header
from postdate.connectors.wire import headers as names
from postdate.connectors.wire.errors import RequestRefused
from postdate.connectors.wire.headers import Headers, is_dropped, is_ours
from postdate.connectors.wire.limits import HORIZON_MS_DEFAULT, PARTITION_END
from postdate.connectors.wire.murmur2 import partition_for
from postdate.connectors.wire.origins import format_origin, parse_origin
from postdate.connectors.wire.reasons import Reason
from postdate.connectors.wire.requests import RequestRules, parse_request

HORIZON: Final = timedelta(milliseconds=HORIZON_MS_DEFAULT)


@dataclass(frozen=True)
class RequestTopic:
    """The request topic `name` with its number of `partitions`, which must be that of the live topic: ask the cluster.

    `horizon`: the longest delay that its sidecars accept, by this machine's clock. Raises ValueError: no such topic
    can exist.
    """

    name: str
    partitions: int
    horizon: timedelta = HORIZON
    _rules: RequestRules = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not 0 < self.partitions < PARTITION_END:
            raise ValueError(f"{self.name} cannot have {self.partitions} partitions")
        rules = RequestRules(topic=self.name, horizon_ms=length_ms("horizon", self.horizon))
        object.__setattr__(self, "_rules", rules)

    def schedule(
        self,
        target: str,
        value: bytes | str | None,
        *,
        key: bytes | str | None = None,
        headers: Iterable[tuple[str, bytes | str | None]] | None = None,
        at: datetime | None = None,
        delay: timedelta | None = None,
        level: int | None = None,
        id: bytes | str | None = None,
        grace: timedelta | None = None,
        target_partition: int | None = None,
    ) -> RequestRecord:
        """Return the record that asks for this message on `target` at a time: one of `at`, `delay` and `level`.

        Texts become UTF-8. `delay` counts from the record's own timestamp. `id`: your name for the message while it is
        pending; scheduling it again replaces it. `grace`: later than due plus this it becomes a dead letter instead.
        `headers` may be those of a delivered record: what Postdate added to them is left out, its id too. Raises
        RequestInvalid, TypeError, UnicodeEncodeError. Cost: O(headers).
        """
        own: Headers = [(names.TOPIC, _utf8("target", target)), time_header(at, delay, level)]
        if grace is not None:
            own.append(grace_header(grace))
        if target_partition is not None:
            own.append((names.PARTITION, b"%d" % target_partition))
        target_key = None if key is None else _utf8("key", key)
        record_key, partition = target_key, None if target_key is None else partition_for(target_key, self.partitions)
        if id is not None:
            record_key = _utf8("id", id)
            partition = self.partition_of(record_key)
            own += [(names.ID, record_key), (names.KEY, target_key)]
        content = None if value is None else _utf8("value", value)
        return self._checked(record_key, content, [*_message_headers(headers or ()), *own], partition)

    def cancel(self, *, id: bytes | str | None = None, origin: bytes | str | None = None) -> RequestRecord:
        """Return the record that ends the pending message of this id, or of the request with this origin.

        Raises RequestInvalid, TypeError. Whether it came in time is told by its verdict.
        """
        return self._control(b"cancel", id, origin, [])

    def reschedule(
        self,
        *,
        id: bytes | str | None = None,
        origin: bytes | str | None = None,
        at: datetime | None = None,
        delay: timedelta | None = None,
        level: int | None = None,
        grace: timedelta | None = None,
    ) -> RequestRecord:
        """Return the record that moves the pending message of this id, or of the request with this origin, to another
        time; the message itself stays. `delay` counts from this record, not from the first.

        Raises RequestInvalid, TypeError. Whether it came in time is told by its verdict.
        """
        own: Headers = [time_header(at, delay, level)]
        if grace is not None:
            own.append(grace_header(grace))
        return self._control(b"reschedule", id, origin, own)

    def partition_of(self, id: bytes | str) -> int:
        """Return the one partition for everything that names this id."""
        return partition_for(_utf8("id", id), self.partitions)

    def origin(self, partition: int, offset: int) -> str:
        """Return the origin of the request that a producer was told to lie at `offset` of `partition`: what `cancel`
        and `reschedule` take, and what a verdict on it names."""
        return format_origin(self.name, partition, offset).decode()

    def _control(
        self, action: bytes, id: bytes | str | None, origin: bytes | str | None, own: Headers
    ) -> RequestRecord:
        if id is not None and origin is not None:
            raise RequestInvalid(Reason.BAD_ACTION, "give id or origin, not both")
        own = [(names.ACTION, action), *own]
        if id is not None:
            named = _utf8("id", id)
            return self._checked(named, None, [*own, (names.ID, named)], self.partition_of(named))
        if origin is None:
            raise RequestInvalid(Reason.MISSING_ID, "give id or origin")
        named = _utf8("origin", origin)
        return self._checked(None, None, [*own, (names.ORIGIN, named)], self._partition_of_origin(named))

    def _partition_of_origin(self, origin: bytes) -> int:
        try:
            topic, partition, _ = parse_origin(origin)
        except ValueError as error:
            raise RequestInvalid(Reason.BAD_ID, f"{origin.decode('utf-8', 'replace')!a} {error}") from None
        if topic != self.name:
            raise RequestInvalid(Reason.BAD_ID, f"the origin names a request on {topic}, not on {self.name}")
        if partition >= self.partitions:
            raise RequestInvalid(
                Reason.BAD_ID,
                f"the origin names partition {partition} of {self.name}, which was said to have {self.partitions}: "
                "ask the cluster for their number again",
            )
        return partition

    def _checked(
        self, key: bytes | None, value: bytes | None, headers: Headers, partition: int | None
    ) -> RequestRecord:
        """Return the record, which the sidecar's own parser has read. Raises RequestInvalid: it would be refused."""
        now_ms = time.time_ns() // 1_000_000
        try:
            parse_request(self._rules, partition or 0, now_ms, key, headers)
        except RequestRefused as refusal:
            raise RequestInvalid(refusal.reason, refusal.detail) from refusal
        return RequestRecord(self.name, key, value, tuple(headers), partition)


def _message_headers(headers: Iterable[tuple[str, bytes | str | None]]) -> Headers:
    """Return the headers of the message, without what Postdate adds to a delivered record.

    Raises RequestInvalid: a name is one of Postdate's, or does not survive the way through Kafka clients.
    """
    kept: Headers = []
    for name, value in headers:
        if is_ours(name):
            if name != names.ID and not is_dropped(name):
                raise RequestInvalid(
                    Reason.UNKNOWN_HEADER, f"header {name[:80]!a} is Postdate's: say it with an argument"
                )
            continue
        if b"\0" in _utf8("header name", name):
            raise RequestInvalid(Reason.BAD_HEADERS, f"clients cut the header name {name[:80]!a} at its NUL")
        kept.append((name, None if value is None else _utf8(f"header {name}", value)))
    return kept


def _utf8(name: str, value: bytes | str) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if not isinstance(value, bytes):
        raise TypeError(f"{name} must be bytes or str, not {type(value).__name__}")
    return value
