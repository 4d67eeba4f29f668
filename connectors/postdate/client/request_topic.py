"""Builds requests to one request topic, with their partitions, and checks each with the sidecar's parser.

An id is known only in one *request partition*, so all requests that name the id must go to this partition. This module
computes the partition from the id (murmur2, as Java clients hash keys), makes the id the record's key, and puts the key
of the message into `postdate-key`. A control that names an origin goes to the origin's partition.

Invariant: `parse_request` accepts every returned record. The sidecar can still refuse a record for reasons that this
module cannot know, such as its settings (allow-list, format version, a shorter horizon), the state of the shard, or the
target topic.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, Literal

from postdate.client.arguments import MessageHeaders, message_headers, returned_headers, utf8, whole_number
from postdate.client.errors import RequestInvalid
from postdate.client.record import RequestRecord
from postdate.client.times import (
    epoch_ms,
    grace_header,
    interval_header,
    latest_header,
    length_ms,
    time_header,
    window_header,
)
from postdate.wire import headers as names
from postdate.wire.errors import RequestRefused
from postdate.wire.headers import Headers
from postdate.wire.limits import FORMAT_VERSION_MAX, HORIZON_MS_DEFAULT, INTEGER_END, PARTITION_END
from postdate.wire.origins import format_origin, parse_origin
from postdate.wire.reasons import Reason
from postdate.wire.requests.parser import parse_request
from postdate.wire.requests.rules import RequestRules
from postdate.wire.values.murmur2 import partition_for

HORIZON: Final = timedelta(milliseconds=HORIZON_MS_DEFAULT)


def _selectors(
    target: str | None,
    id_prefix: bytes | str | None,
    key: bytes | str | None,
    due_from: datetime | None,
    due_until: datetime | None,
) -> Headers:
    """Returns the headers that select messages. Raises RequestInvalid if no selector is given, or a time is invalid."""
    given = ((names.SELECT_TOPIC, target), (names.SELECT_ID, id_prefix), (names.SELECT_KEY, key))
    found: Headers = [(name, utf8(name, value)) for name, value in given if value is not None]
    times = ((names.SELECT_FROM, due_from), (names.SELECT_UNTIL, due_until))
    found += [(name, time_header(at, None, None)[1]) for name, at in times if at is not None]
    if not found:
        raise RequestInvalid(Reason.BAD_SELECTION, "give at least one selector")
    return found


@dataclass(frozen=True)
class RequestTopic:
    """The request topic `name`. `partitions` must be the partition count of the live topic: read it from the cluster.

    `horizon`: the longest delay that its sidecars accept. The check here uses this machine's clock. Raises ValueError
    if no such topic can exist, RequestInvalid if the horizon is negative, TypeError if an argument has the wrong type.
    """

    name: str
    partitions: int
    horizon: timedelta = HORIZON
    _rules: RequestRules = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise TypeError(f"the name of a topic must be a str, not {type(self.name).__name__}")
        if not 0 < whole_number("partitions", self.partitions) < PARTITION_END:
            raise ValueError(f"{self.name} cannot have {self.partitions} partitions")
        horizon_ms = length_ms("horizon", self.horizon)
        rules = RequestRules(topic=self.name, horizon_ms=horizon_ms, format_version=FORMAT_VERSION_MAX)
        object.__setattr__(self, "_rules", rules)

    def schedule(
        self,
        target: str,
        value: bytes | str | None,
        *,
        key: bytes | str | None = None,
        headers: MessageHeaders | None = None,
        at: datetime | None = None,
        delay: timedelta | None = None,
        level: int | None = None,
        id: bytes | str | None = None,
        grace: timedelta | None = None,
        target_partition: int | None = None,
        window: timedelta | None = None,
        spread: Literal["even"] | None = None,
        if_pending: Literal["replace", "keep"] | None = None,
        latest: timedelta | None = None,
        if_ended: Literal["drop"] | None = None,
    ) -> RequestRecord:
        """Returns the record that schedules this message for `target` at a time: one of `at`, `delay` and `level`.

        Texts become UTF-8. `delay` counts from the record's own timestamp. `id`: your name for the message while it is
        pending. A second request with this id replaces the message. If the second request has `if_pending="keep"`, the
        message stays, and that request is discarded. `grace`: a message that is late by more than this becomes a dead
        letter.
        `window`: the message leaves within this time after its due time. The time within the window follows from the
        request's origin; with `spread="even"`, the sidecar chooses a time with a low load. `latest`: the
        longest time by which replacing requests can postpone the message, counted from the first request of the series.
        With `if_ended="drop"`, this request ends without a delivery if a message of this id was delivered within the
        remembered window, and that message was also requested with `if_ended`. `window`, `spread`, `if_pending`,
        `latest` and `if_ended` need the setting `format_version = 2` in the deployment.

        `headers`: a mapping, or pairs of name and value. The headers of a delivered record are accepted: those that
        Postdate added, including the id, are left out. Raises RequestInvalid, TypeError, UnicodeEncodeError. Cost:
        O(headers).
        """
        own: Headers = [(names.TOPIC, utf8("target", target)), time_header(at, delay, level)]
        if grace is not None:
            own.append(grace_header(grace))
        if window is not None:
            own.append(window_header(window))
        if spread is not None:
            own.append((names.SPREAD, utf8("spread", spread)))
        if if_pending is not None:
            own.append((names.IF_PENDING, utf8("if_pending", if_pending)))
        if if_ended is not None:
            own.append((names.IF_ENDED, utf8("if_ended", if_ended)))
        if latest is not None:
            own.append(latest_header(latest))
        if target_partition is not None:
            own.append((names.PARTITION, b"%d" % whole_number("target_partition", target_partition)))
        target_key = None if key is None else utf8("key", key)
        record_key, partition = target_key, None if target_key is None else partition_for(target_key, self.partitions)
        if id is not None:
            record_key = utf8("id", id)
            partition = self.partition_of(record_key)
            own += [(names.ID, record_key), (names.KEY, target_key)]
        content = None if value is None else utf8("value", value)
        return self._checked(record_key, content, [*message_headers(headers), *own], partition)

    def repeat(
        self,
        target: str,
        value: bytes | str | None,
        *,
        id: bytes | str,
        cron: str | None = None,
        every: timedelta | None = None,
        phase: timedelta | None = None,
        zone: str | None = None,
        gap: Literal["next", "skip"] | None = None,
        fold: Literal["first", "last", "both"] | None = None,
        start: datetime | None = None,
        end: datetime | None = None,
        count: int | None = None,
        missed: Literal["all", "last", "none"] | None = None,
        catch_up: timedelta | None = None,
        window: timedelta | None = None,
        grace: timedelta | None = None,
        key: bytes | str | None = None,
        headers: MessageHeaders | None = None,
        target_partition: int | None = None,
    ) -> RequestRecord:
        """Returns the record of a recurring schedule of this message: by `cron` in a `zone`, or at an interval `every`.

        `id` names the schedule: a second schedule with this id replaces it, and `cancel` ends it. `zone`: an IANA name;
        UTC by default. `gap`, `fold`: the effect of clock changes. `phase` shifts the multiples of `every`. `start`,
        `end`: inclusive. `count`: the number of the last occurrence. `missed`, `catch_up`, `grace`: which late
        occurrences are skipped. `docs/calendar.md` has the rules. The deployment needs the setting
        `format_version = 3`. Raises RequestInvalid, TypeError, UnicodeEncodeError. Cost: O(headers).
        """
        if every is None and phase is not None:
            raise RequestInvalid(Reason.BAD_SCHEDULE, "phase belongs to every")
        own: Headers = [(names.TOPIC, utf8("target", target))]
        own += [] if every is None else [interval_header(every, phase)]
        texts = {names.CRON: cron, names.ZONE: zone, names.GAP: gap, names.FOLD: fold, names.MISSED: missed}
        own += [(name, utf8(name, text)) for name, text in texts.items() if text is not None]
        own += [(name, b"%d" % epoch_ms(at)) for name, at in ((names.START, start), (names.END, end)) if at is not None]
        own += [] if count is None else [(names.COUNT, b"%d" % whole_number("count", count))]
        own += [] if catch_up is None else [(names.CATCH_UP, b"%d" % length_ms("catch_up", catch_up))]
        own += [] if window is None else [window_header(window)]
        own += [] if grace is None else [grace_header(grace)]
        if target_partition is not None:
            own.append((names.PARTITION, b"%d" % whole_number("target_partition", target_partition)))
        named = utf8("id", id)
        own += [(names.ID, named), (names.KEY, None if key is None else utf8("key", key))]
        if names.CRON not in dict(own) and names.EVERY not in dict(own):
            raise RequestInvalid(Reason.BAD_SCHEDULE, "give one of cron and every")
        content = None if value is None else utf8("value", value)
        return self._checked(named, content, [*message_headers(headers), *own], self.partition_of(named))

    def retry(
        self,
        target: str,
        value: bytes | str | None,
        policy: str,
        *,
        key: bytes | str | None = None,
        headers: MessageHeaders | None = None,
        error: bytes | str | None = None,
    ) -> RequestRecord:
        """Returns the record with which a consumer returns a message, to be delivered to `target` again later.

        `value`, `key`, `headers`: those of the consumed message. Pass all headers, since Postdate counts the attempts
        in them. `policy`: a text such as `base=1s, factor=2, max=1h, attempts=12, jitter=20%`, or the name of a policy
        of the request topic. `error`: the reason, for `postdate-error`. If the policy permits no further attempt, the
        message becomes a dead letter. The deployment needs the setting `format_version = 2`. Raises RequestInvalid,
        TypeError, UnicodeEncodeError. Cost: O(headers).
        """
        own: Headers = [(names.TOPIC, utf8("target", target)), (names.RETRY, utf8("policy", policy))]
        if error is not None:
            own.append((names.ERROR, utf8("error", error)))
        record_key = None if key is None else utf8("key", key)
        partition = None if record_key is None else partition_for(record_key, self.partitions)
        content = None if value is None else utf8("value", value)
        return self._checked(record_key, content, [*returned_headers(headers), *own], partition)

    def cancel(self, *, id: bytes | str | None = None, origin: bytes | str | None = None) -> RequestRecord:
        """Returns the record that ends the pending message or recurring schedule of this id, or of the request with
        this origin.

        Raises RequestInvalid, TypeError, UnicodeEncodeError. The verdict shows whether the cancel was in time.
        """
        return self._control(b"cancel", id, origin, [])

    def pause(self, *, id: bytes | str | None = None, origin: bytes | str | None = None) -> RequestRecord:
        """Returns the record that pauses the recurring schedule of this id, or of the request with this origin. Nominal
        times from the timestamp of this record until that of a `resume` record are skipped.

        The deployment needs the setting `format_version = 3`. Raises RequestInvalid, TypeError, UnicodeEncodeError. The
        verdict is `paused`; after it, none of the skipped occurrences is delivered.
        """
        return self._control(b"pause", id, origin, [])

    def resume(self, *, id: bytes | str | None = None, origin: bytes | str | None = None) -> RequestRecord:
        """Returns the record that ends a pause: nominal times from the timestamp of this record on are delivered again.
        Requirements and errors are those of `pause`. The verdict is `resumed`."""
        return self._control(b"resume", id, origin, [])

    def trigger(self, *, id: bytes | str | None = None, origin: bytes | str | None = None) -> RequestRecord:
        """Returns the record that delivers the recurring schedule of this id, or of the request with this origin, once
        more, at the timestamp of this record. The extra delivery consumes no occurrence number.

        The deployment needs the setting `format_version = 3`. Raises RequestInvalid, TypeError, UnicodeEncodeError. The
        verdict, `triggered`, promises one delivery, unless a cancel or a replacement ends the schedule first.
        """
        return self._control(b"trigger", id, origin, [])

    def backfill(
        self, start: datetime, end: datetime, *, id: bytes | str | None = None, origin: bytes | str | None = None
    ) -> RequestRecord:
        """Returns the record that delivers the recurring schedule of this id, or of the request with this origin, once
        more for each of its past nominal times from `start` to `end`, both included.

        The extra deliveries consume no occurrence numbers. The deployment needs the setting `format_version = 3`.
        Raises RequestInvalid, TypeError, UnicodeEncodeError. The verdict, `backfilled`, promises one delivery for each
        of these times, unless a cancel or a replacement ends the schedule first.
        """
        own: Headers = [(names.START, b"%d" % epoch_ms(start)), (names.END, b"%d" % epoch_ms(end))]
        return self._control(b"backfill", id, origin, own)

    def cancel_selected(
        self,
        *,
        target: str | None = None,
        id_prefix: bytes | str | None = None,
        key: bytes | str | None = None,
        due_from: datetime | None = None,
        due_until: datetime | None = None,
    ) -> list[RequestRecord]:
        """Returns the records, one for each partition, that end every pending message which matches all of the given
        selectors: its target, the beginning of its id, its key, a due time in [`due_from`, `due_until`).

        Produce all of the records. The verdict on each record, `applied`, has the `count` of messages that it ended.
        The deployment needs the setting `format_version = 2`. Raises RequestInvalid, TypeError, UnicodeEncodeError.
        O(partitions).
        """
        return self._of_all([(names.ACTION, b"cancel")], _selectors(target, id_prefix, key, due_from, due_until))

    def reschedule_selected(
        self,
        by: timedelta,
        *,
        target: str | None = None,
        id_prefix: bytes | str | None = None,
        key: bytes | str | None = None,
        due_from: datetime | None = None,
        due_until: datetime | None = None,
    ) -> list[RequestRecord]:
        """Returns the records, one for each partition, that move every selected message by a time span, positive or
        negative. They do not move recurring schedules. Produce each record once: a second one moves the same messages
        again. Selectors, verdicts and errors are those of `cancel_selected`."""
        length = length_ms("by", abs(by))
        own: Headers = [
            (names.ACTION, b"reschedule"),
            (names.BY, b"%s%d" % (b"-" if by < timedelta() else b"", length)),
        ]
        return self._of_all(own, _selectors(target, id_prefix, key, due_from, due_until))

    def deliver_selected(
        self,
        *,
        target: str | None = None,
        id_prefix: bytes | str | None = None,
        key: bytes | str | None = None,
        due_from: datetime | None = None,
        due_until: datetime | None = None,
    ) -> list[RequestRecord]:
        """Returns the records, one for each partition, that make every selected message due at the timestamp of the
        record. They do not move recurring schedules. Selectors, verdicts and errors are those of `cancel_selected`."""
        own: Headers = [(names.ACTION, b"reschedule"), (names.DELAY, b"0")]
        return self._of_all(own, _selectors(target, id_prefix, key, due_from, due_until))

    def _of_all(self, own: Headers, selected: Headers) -> list[RequestRecord]:
        return [self._checked(None, None, [*own, *selected], index) for index in range(self.partitions)]

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
        """Returns the record that moves the pending message of this id, or of the request with this origin, to another
        time; the message itself stays. `delay` counts from the timestamp of this record, not of the first request.

        Raises RequestInvalid, TypeError, UnicodeEncodeError. The verdict shows whether the reschedule was in time.
        """
        own: Headers = [time_header(at, delay, level)]
        if grace is not None:
            own.append(grace_header(grace))
        return self._control(b"reschedule", id, origin, own)

    def deliver(self, *, id: bytes | str | None = None, origin: bytes | str | None = None) -> RequestRecord:
        """Returns the record that makes the pending message of this id, or of the request with this origin, due at the
        record's own timestamp: a reschedule with a delay of 0.

        Raises RequestInvalid, TypeError, UnicodeEncodeError. The verdicts are those of a reschedule.
        """
        return self._control(b"reschedule", id, origin, [(names.DELAY, b"0")])

    def partition_of(self, id: bytes | str) -> int:
        """Returns the partition to which all requests with this id must go."""
        return partition_for(utf8("id", id), self.partitions)

    def origin(self, partition: int, offset: int) -> str:
        """Returns the origin of the request whose acknowledgement has this partition and offset. Controls such as
        `cancel` take the origin as an argument, and verdicts contain it.

        Raises RequestInvalid if this topic cannot have a request at this partition and offset. Raises TypeError.
        """
        if not 0 <= whole_number("partition", partition) < self.partitions:
            raise RequestInvalid(Reason.BAD_ID, f"{self.name} has {self.partitions} partitions, so no {partition}")
        if not 0 <= whole_number("offset", offset) < INTEGER_END:
            raise RequestInvalid(Reason.BAD_ID, f"{offset} is not the offset of a record: wait for its acknowledgement")
        return format_origin(self.name, partition, offset).decode()

    def _control(
        self, action: bytes, id: bytes | str | None, origin: bytes | str | None, own: Headers
    ) -> RequestRecord:
        if id is not None and origin is not None:
            raise RequestInvalid(Reason.BAD_ACTION, "give id or origin, not both")
        own = [(names.ACTION, action), *own]
        if id is not None:
            named = utf8("id", id)
            return self._checked(named, None, [*own, (names.ID, named)], self.partition_of(named))
        if origin is None:
            raise RequestInvalid(Reason.MISSING_ID, "give id or origin")
        named = utf8("origin", origin)
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
                f"the origin names partition {partition} of {self.name}, which has {self.partitions} according to "
                "this RequestTopic: ask the cluster for the number again",
            )
        return partition

    def _checked(
        self, key: bytes | None, value: bytes | None, headers: Headers, partition: int | None
    ) -> RequestRecord:
        """Returns the record after the sidecar's parser has accepted it. Raises RequestInvalid if the parser refuses
        it."""
        now_ms = time.time_ns() // 1_000_000
        try:
            parse_request(self._rules, partition or 0, now_ms, key, headers)
        except RequestRefused as refusal:
            raise RequestInvalid(refusal.reason, refusal.detail) from refusal
        return RequestRecord(self.name, key, value, tuple(headers), partition)
