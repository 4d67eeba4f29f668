"""Parses requests: a record's headers become a `Request`, or a reason for refusing it.

Pure and deterministic: the result depends only on the rules and the record, so that ingest, recovery and audit agree.
In particular, the horizon and relative delays count from the record's timestamp, never from a clock. For any headers,
parsing returns a request or raises RequestRefused.

This is the hot path of every message: one pass over the headers, then a few look-ups for the common request (a target
and one time). Rules remember parsed texts, so a repeated text is not parsed again.
"""

from __future__ import annotations

from difflib import get_close_matches
from functools import lru_cache
from typing import NamedTuple, NoReturn

import msgspec

from postdate.wire.dialects.translation import Translation, translate
from postdate.wire.errors import FormatVersionNeeded, RequestRefused
from postdate.wire.headers import (
    ACTION,
    AT,
    BY,
    CRON,
    DELAY,
    DROPPED_3,
    END,
    EVERY,
    FORMAT_2,
    GRACE,
    ID,
    IF_ENDED,
    IF_PENDING,
    KEY,
    LATEST,
    LEVEL,
    ORIGIN,
    PARTITION,
    REQUEST_2,
    RETRY,
    SCHEDULE,
    SELECTORS,
    SPREAD,
    START,
    TIMES,
    TOPIC,
    WINDOW,
    Headers,
    StrippedHeaders,
    is_dropped,
    is_postdate_header,
    split_redelivery,
)
from postdate.wire.limits import (
    DUE_MS_MIN,
    HINTS_REMEMBERED_MAX,
    ID_BYTES_MAX,
    INTEGER_END,
    PARTITION_END,
    RETURNS_VERSION,
    SCHEDULES_VERSION,
    WINDOW_MS_MAX,
)
from postdate.wire.origins import parse_origin
from postdate.wire.reasons import Reason
from postdate.wire.requests.request import OF_SCHEDULES, Action, Request
from postdate.wire.requests.returns import read_return
from postdate.wire.requests.rules import RequestRules
from postdate.wire.requests.selection import Selection, read_selection
from postdate.wire.schedules.occurrences import first_occurrence
from postdate.wire.schedules.schedule import Schedule, read_schedule, read_times
from postdate.wire.values.durations import format_duration
from postdate.wire.values.instants import parse_instant_ms
from postdate.wire.values.texts import parse_natural, plain_ms, quote, time_text

_ACTIONS: dict[bytes | None, Action] = {
    b"schedule": Action.SCHEDULE,
    b"cancel": Action.CANCEL,
    b"reschedule": Action.RESCHEDULE,
    b"pause": Action.PAUSE,
    b"resume": Action.RESUME,
    b"trigger": Action.TRIGGER,
    b"backfill": Action.BACKFILL,
}
_FORMAT_3 = SCHEDULE | DROPPED_3
_KNOWN = sorted(REQUEST_2 | SCHEDULE)
#: The maximum length of a name that is compared with the known names. No known name is similar to a longer name.
_COMPARED_LENGTH_MAX = 2 * max(map(len, _KNOWN))
_NAMED_TAKES = frozenset({ACTION, ID})
_TAKES = {
    Action.RESCHEDULE: _NAMED_TAKES | {GRACE, *TIMES},
    Action.BACKFILL: _NAMED_TAKES | {START, END},
}
_BULK_TAKES = {Action.CANCEL: SELECTORS | {ACTION}, Action.RESCHEDULE: SELECTORS | {ACTION, BY, *TIMES}}


def parse_request(
    rules: RequestRules,
    partition: int,
    timestamp_ms: int,
    key: bytes | None,
    headers: Headers | None,
    is_tombstone: bool = False,
) -> Request:
    """Returns the request in the record at `partition` of `rules.topic`.

    `timestamp_ms`: the timestamp of the record, or -1 if it has none. `headers`: None if the client library could not
    read them. `is_tombstone`: True if the value of the record is null, which is a cancel in some dialects. Raises
    RequestRefused if the request must end as a dead letter. Cost: O(headers), 1 to 2 us, or 5 to 8 us in a dialect.
    """
    if headers is None:
        raise RequestRefused(Reason.BAD_HEADERS, "a header name is not UTF-8, so no header could be read")
    if rules.vocabulary is not None and (native := translate(rules.vocabulary, key, headers, is_tombstone)) is not None:
        return _parse_translation(rules, partition, timestamp_ms, key, native)
    untouched: Headers = []
    stripped: StrippedHeaders = []
    fields: dict[str, bytes | None] = {}
    left_over: list[tuple[str, bytes | None]] = []
    known = rules.names
    for index, header in enumerate(headers):
        name, value = header
        if name in known:
            stripped.append((index, name, value))
            fields[name] = value
        elif name[:1] in "pP" and (name in rules.dropped or is_postdate_header(name)):
            if name not in rules.dropped and not is_dropped(name):
                _refuse_unknown(rules, name)
            stripped.append((index, name, value))
            left_over.append(header)
        else:
            untouched.append(header)
    if len(fields) + len(left_over) != len(stripped):
        _refuse_duplicate([name for _, name, _ in stripped if name in known])
    if ACTION in fields:
        action = _action(rules, fields[ACTION])
        if action is not Action.SCHEDULE:
            record = _ControlRecord(rules, partition, timestamp_ms, key, fields, left_over, untouched, stripped)
            return _parse_control(action, record)
    if TOPIC not in fields:
        raise RequestRefused(Reason.MISSING_TARGET, "a request to schedule needs postdate-topic")
    target = rules.parse_target(fields[TOPIC])
    due_ms = _due_ms(rules, timestamp_ms, fields)
    if len(fields) == 2 and due_ms >= 0:
        return Request(0, target, due_ms, key, -1, b"", -1, -1, untouched, stripped)
    schedule, due_ms = _schedule(timestamp_ms, fields, due_ms)
    return Request(
        Action.SCHEDULE,
        target,
        due_ms,
        fields.get(KEY, key),
        _target_partition(fields[PARTITION]) if PARTITION in fields else -1,
        _id(fields[ID]) if ID in fields else b"",
        -1,
        _grace_ms(rules, fields[GRACE]) if GRACE in fields and schedule is None else -1,
        untouched,
        stripped,
        read_return(rules, fields[RETRY], left_over) if RETRY in fields else None,
        _window_ms(rules, timestamp_ms, due_ms, fields[WINDOW]) if WINDOW in fields and schedule is None else 0,
        is_even=SPREAD in fields and _is_even(fields),
        keeps=IF_PENDING in fields and _keeps(fields),
        latest_ms=_latest_ms(rules, fields) if LATEST in fields else 0,
        schedule=schedule,
        drops=IF_ENDED in fields and _drops(fields),
    )


def sent_headers(headers: Headers, stripped: StrippedHeaders) -> Headers:
    """Returns the headers of an entry's record as sent, without the headers that `schedule_return` has added.

    Cost: O(headers).
    """
    # Without `stripped`, the request was refused, and its entry has all headers as sent.
    return restore_headers(split_redelivery(headers)[0], stripped) if stripped else headers


def restore_headers(headers: Headers, stripped: StrippedHeaders) -> Headers:
    """Returns the headers with the removed headers at their positions: the inverse of parsing.

    Cost: O(headers).
    """
    restored: Headers = []
    taken = 0
    for index, name, value in stripped:  # no `insert`: a request may have tens of thousands of headers
        missing = index - len(restored)
        restored += headers[taken : taken + missing]
        taken += missing
        restored.append((name, value))
    restored += headers[taken:]
    return restored


def _parse_translation(
    rules: RequestRules, partition: int, timestamp_ms: int, key: bytes | None, translation: Translation
) -> Request:
    """Returns the request of a record in a dialect, by parsing the equivalent headers of Postdate."""
    try:
        request = parse_request(rules, partition, timestamp_ms, key, translation.own)
    except RequestRefused as refused:
        raise RequestRefused(refused.reason, translation.with_sent_header_names(refused.detail)) from None
    stripped = translation.stripped
    if request.schedule is not None:  # the later times of the schedule are computed from these headers
        stripped = [(index, name, value) for index, (name, value) in enumerate(translation.own)]
    return msgspec.structs.replace(request, headers=translation.headers, stripped=stripped)


def _due_ms(rules: RequestRules, timestamp_ms: int, fields: dict[str, bytes | None]) -> int:
    """Returns the due time that the only time in `fields` gives, or -1 for a return or a schedule."""
    # A target and one more header cannot contain two times.
    if len(fields) > 2 and (DELAY in fields) + (AT in fields) + (LEVEL in fields) + (RETRY in fields) > 1:
        raise RequestRefused(
            Reason.CONFLICTING_TIME,
            "only one of postdate-at, postdate-delay, postdate-level and postdate-retry may be given",
        )
    if timestamp_ms < 0:
        raise RequestRefused(Reason.BAD_TIME, "the record has no timestamp from which delay and horizon could count")
    if DELAY in fields:
        try:
            due_ms = timestamp_ms + rules.parse_delay_ms(fields[DELAY])
        except ValueError as error:
            raise RequestRefused(Reason.BAD_TIME, f"postdate-delay {quote(fields[DELAY])} {error}") from None
    elif AT in fields:
        try:
            due_ms = plain_ms(fields[AT])
            if due_ms < 0:
                due_ms = parse_instant_ms(time_text(fields[AT]))
        except ValueError as error:
            raise RequestRefused(Reason.BAD_TIME, f"postdate-at {quote(fields[AT])} {error}") from None
    elif LEVEL in fields:
        due_ms = timestamp_ms + rules.level_ms(fields[LEVEL])
    elif RETRY in fields or CRON in fields or EVERY in fields:
        return -1
    else:
        raise RequestRefused(Reason.MISSING_TIME, "needs one of postdate-at, postdate-delay and postdate-level")
    if due_ms - timestamp_ms > rules.horizon_ms or due_ms >= INTEGER_END:
        _refuse_horizon(rules, due_ms - timestamp_ms, "")
    return due_ms if due_ms >= DUE_MS_MIN else DUE_MS_MIN


def _schedule(timestamp_ms: int, fields: dict[str, bytes | None], due_ms: int) -> tuple[Schedule | None, int]:
    """Returns the recurring schedule that `fields` describes, and its first nominal time, or None and `due_ms` if there
    is no schedule."""
    if BY in fields or not SELECTORS.isdisjoint(fields):
        raise RequestRefused(Reason.BAD_ACTION, "a request to schedule takes no selector, and no postdate-by")
    if SCHEDULE.isdisjoint(fields):
        return None, due_ms
    for name in (SPREAD, IF_PENDING, IF_ENDED, LATEST):
        if name in fields:
            raise RequestRefused(Reason.BAD_SCHEDULE, f"a recurring schedule takes no {name}")
    if due_ms >= 0 or RETRY in fields:
        given = next(name for name in fields if name in SCHEDULE)
        raise RequestRefused(Reason.CONFLICTING_TIME, f"{given} belongs to a schedule, which takes no other time")
    try:
        schedule = read_schedule(fields)
    except ValueError as error:
        raise RequestRefused(Reason.BAD_SCHEDULE, str(error)) from None
    first = first_occurrence(schedule, timestamp_ms)
    if first is None:
        raise RequestRefused(Reason.BAD_SCHEDULE, "the schedule has no occurrence: no time matches before its end")
    return schedule, first.nominal_ms


def _refuse_horizon(rules: RequestRules, delay_ms: int, why: str) -> NoReturn:
    delay, horizon = format_duration(delay_ms), format_duration(rules.horizon_ms)
    raise RequestRefused(Reason.BEYOND_HORIZON, f"due {delay} after the request{why}; the horizon is {horizon}")


def _window_ms(rules: RequestRules, timestamp_ms: int, due_ms: int, value: bytes | None) -> int:
    """Returns the length of the window. Raises RequestRefused if the end of the window lies beyond the horizon."""
    if due_ms < 0:
        raise RequestRefused(Reason.BAD_WINDOW, "a request with postdate-retry takes no postdate-window")
    try:
        window_ms = rules.parse_delay_ms(value)
    except ValueError as error:
        raise RequestRefused(Reason.BAD_WINDOW, f"postdate-window {quote(value)} {error}") from None
    if not 0 < window_ms <= WINDOW_MS_MAX:
        longest = format_duration(WINDOW_MS_MAX)
        raise RequestRefused(Reason.BAD_WINDOW, f"postdate-window {quote(value)} is 0, or longer than {longest}")
    latest_ms = due_ms + window_ms
    if latest_ms - timestamp_ms > rules.horizon_ms or latest_ms >= INTEGER_END:
        _refuse_horizon(rules, latest_ms - timestamp_ms, f" with a window of {format_duration(window_ms)}")
    return window_ms


def _is_even(fields: dict[str, bytes | None]) -> bool:
    """Returns True if `postdate-spread` is `even`, its only value. Raises RequestRefused otherwise."""
    if fields[SPREAD] != b"even":
        raise RequestRefused(Reason.BAD_SPREAD, f"postdate-spread {quote(fields[SPREAD])} is not even")
    if WINDOW not in fields:
        raise RequestRefused(Reason.BAD_SPREAD, "postdate-spread needs a postdate-window in which to spread")
    return True


def _keeps(fields: dict[str, bytes | None]) -> bool:
    """Returns the value of `postdate-if-pending`: True for `keep`, False for `replace`."""
    value = fields[IF_PENDING]
    if value not in (b"keep", b"replace"):
        raise RequestRefused(Reason.BAD_IF_PENDING, f"{IF_PENDING} {quote(value)} is neither keep nor replace")
    _require_id(fields, IF_PENDING, Reason.BAD_IF_PENDING)
    return value == b"keep"


def _drops(fields: dict[str, bytes | None]) -> bool:
    """Returns True if `postdate-if-ended` is `drop`, its only value. Raises RequestRefused otherwise."""
    value = fields[IF_ENDED]
    if value != b"drop":
        raise RequestRefused(Reason.BAD_IF_ENDED, f"{IF_ENDED} {quote(value)} is not drop")
    _require_id(fields, IF_ENDED, Reason.BAD_IF_ENDED)
    return True


def _latest_ms(rules: RequestRules, fields: dict[str, bytes | None]) -> int:
    """Returns the duration in `postdate-latest`."""
    value = fields[LATEST]
    try:
        latest_ms = rules.parse_delay_ms(value)
    except ValueError as error:
        raise RequestRefused(Reason.BAD_LATEST, f"{LATEST} {quote(value)} {error}") from None
    if not 0 < latest_ms <= WINDOW_MS_MAX:
        longest = format_duration(WINDOW_MS_MAX)
        raise RequestRefused(Reason.BAD_LATEST, f"{LATEST} {quote(value)} is 0, or longer than {longest}")
    _require_id(fields, LATEST, Reason.BAD_LATEST)
    if fields.get(IF_PENDING) == b"keep":
        raise RequestRefused(
            Reason.BAD_LATEST, f"a request with {IF_PENDING} keep replaces nothing: it takes no {LATEST}"
        )
    return latest_ms


def _require_id(fields: dict[str, bytes | None], name: str, reason: Reason) -> None:
    if RETRY in fields:
        raise RequestRefused(reason, f"the id of a return is not registered: a request with {RETRY} takes no {name}")
    if ID not in fields:
        raise RequestRefused(Reason.MISSING_ID, f"{name} needs postdate-id")


def _action(rules: RequestRules, value: bytes | None) -> Action:
    action = _ACTIONS.get(value)
    if action is None:
        raise RequestRefused(Reason.BAD_ACTION, f"postdate-action {quote(value)} is not an action")
    if action in OF_SCHEDULES and rules.format_version < SCHEDULES_VERSION:
        served = f"{rules.topic} is served with {rules.format_version}"
        need = f"postdate-action {quote(value)} needs format_version = {SCHEDULES_VERSION}"
        raise FormatVersionNeeded(Reason.BAD_ACTION, need, served)
    return action


class _ControlRecord(NamedTuple):
    """The parts of a control's record: the values of its known headers by name, its other headers of Postdate, and the
    headers of its producer."""

    rules: RequestRules
    partition: int
    timestamp_ms: int
    key: bytes | None
    fields: dict[str, bytes | None]
    left_over: list[tuple[str, bytes | None]]
    untouched: Headers
    stripped: StrippedHeaders


def _parse_control(action: Action, record: _ControlRecord) -> Request:
    """Returns the control in a record. A control names one request by id or by origin, or selects many requests."""
    rules, partition, timestamp_ms, key, fields, left_over, untouched, stripped = record
    is_bulk = action in _BULK_TAKES and not SELECTORS.isdisjoint(fields)
    takes = _BULK_TAKES[action] if is_bulk else _TAKES.get(action, _NAMED_TAKES)
    for name in (*fields, *(name for name, _ in left_over)):
        if name not in takes and (is_bulk or name != ORIGIN):
            of_many = " with selectors" if is_bulk else ""
            raise RequestRefused(Reason.BAD_ACTION, f"a {action.name.lower()}{of_many} does not take {quote(name)}")
    if is_bulk:
        selection, due_ms, by_ms = _bulk_control(action, rules, timestamp_ms, fields)
        return Request(action, "", due_ms, key, -1, b"", -1, -1, untouched, stripped, selection=selection, by_ms=by_ms)
    if len(left_over) > 1:
        _refuse_duplicate([ORIGIN, ORIGIN])
    if ID in fields and left_over:
        raise RequestRefused(
            Reason.BAD_ACTION, f"a {action.name.lower()} takes postdate-id or postdate-origin, not both"
        )
    if ID not in fields and not left_over:
        raise RequestRefused(Reason.MISSING_ID, f"a {action.name.lower()} needs postdate-id or postdate-origin")
    if action in OF_SCHEDULES and timestamp_ms < 0:
        raise RequestRefused(Reason.BAD_TIME, f"the record has no timestamp, from which a {action.name.lower()} counts")
    identifier = _id(fields[ID]) if ID in fields else b""
    acts_on = _offset_of_origin(rules, partition, left_over[0][1]) if left_over else -1
    due_ms = _due_ms(rules, timestamp_ms, fields) if action is Action.RESCHEDULE else -1
    grace_ms = _grace_ms(rules, fields[GRACE]) if GRACE in fields else -1
    times_ms = _times_ms(timestamp_ms, fields) if action is Action.BACKFILL else (-1, -1)
    return Request(action, "", due_ms, key, -1, identifier, acts_on, grace_ms, untouched, stripped, times_ms=times_ms)


def _times_ms(timestamp_ms: int, fields: dict[str, bytes | None]) -> tuple[int, int]:
    """Returns the first and the last nominal time of a backfill. Raises RequestRefused if the last one has not passed,
    since no occurrence is delivered in advance."""
    for name in (START, END):
        if name not in fields:
            raise RequestRefused(Reason.MISSING_TIME, f"a backfill needs {START} and {END}, and has no {name}")
    try:
        start_ms, end_ms = read_times(fields)
    except ValueError as error:
        raise RequestRefused(Reason.BAD_TIME, str(error)) from None
    if end_ms > timestamp_ms:
        detail = (
            f"{END} {quote(fields[END])} lies after the record's timestamp: a backfill delivers times that have passed"
        )
        raise RequestRefused(Reason.BAD_TIME, detail)
    return start_ms, end_ms


def _bulk_control(
    action: Action, rules: RequestRules, timestamp_ms: int, fields: dict[str, bytes | None]
) -> tuple[Selection, int, int]:
    """Returns the selection of a control with selectors, the time to which it moves the messages (-1 if none), and the
    duration by which it moves them (0 if none)."""
    selection = read_selection(fields)
    if action is Action.CANCEL:
        return selection, -1, 0
    if BY not in fields:
        return selection, _due_ms(rules, timestamp_ms, fields), 0
    if not fields.keys().isdisjoint(TIMES):
        raise RequestRefused(Reason.CONFLICTING_TIME, "only one time or postdate-by may be given")
    return selection, -1, _by_ms(rules, fields[BY])


def _by_ms(rules: RequestRules, value: bytes | None) -> int:
    """Returns the duration, positive or negative, by which a bulk reschedule moves messages."""
    is_earlier = value is not None and value.startswith(b"-")
    try:
        by_ms = rules.parse_delay_ms(value[1:] if is_earlier and value is not None else value)
    except ValueError as error:
        raise RequestRefused(Reason.BAD_TIME, f"postdate-by {quote(value)} {error}") from None
    if by_ms == 0:
        raise RequestRefused(Reason.BAD_TIME, f"postdate-by {quote(value)} moves nothing")
    if by_ms > rules.horizon_ms:
        longest = format_duration(rules.horizon_ms)
        raise RequestRefused(Reason.BEYOND_HORIZON, f"postdate-by {quote(value)} is longer than the horizon, {longest}")
    return -by_ms if is_earlier else by_ms


def _refuse_unknown(rules: RequestRules, name: str) -> NoReturn:
    needed = RETURNS_VERSION if name in FORMAT_2 else SCHEDULES_VERSION if name in _FORMAT_3 else None
    if needed is not None:
        served = f"{rules.topic} is served with {rules.format_version}"
        remedy = f"set it for all sidecars and commands (POSTDATE_FORMAT_VERSION={needed})"
        need = f"header {quote(name)} needs format_version = {needed}"
        raise FormatVersionNeeded(Reason.UNKNOWN_HEADER, need, f"{served}: {remedy}")
    raise RequestRefused(Reason.UNKNOWN_HEADER, f"header {quote(name)} is not known to Postdate{_nearest(name)}")


@lru_cache(maxsize=HINTS_REMEMBERED_MAX)
def _nearest(name: str) -> str:
    """Returns a clause with the known header that is most similar to an unknown one, or "" if none is similar. Cost:
    0.2 ms for a name that was not seen lately."""
    nearest = get_close_matches(name.lower(), _KNOWN, n=1, cutoff=0.85) if len(name) <= _COMPARED_LENGTH_MAX else []
    return f"; did you mean {nearest[0]}?" if nearest else ""


def _refuse_duplicate(names: list[str]) -> NoReturn:
    repeated = next(name for name in names if names.count(name) > 1)
    raise RequestRefused(Reason.DUPLICATE_HEADER, f"{repeated} is given more than once")


def _target_partition(value: bytes | None) -> int:
    try:
        return parse_natural(time_text(value), PARTITION_END)
    except ValueError as error:
        raise RequestRefused(Reason.BAD_PARTITION, f"postdate-partition {quote(value)} {error}") from None


def _id(value: bytes | None) -> bytes:
    if not value or len(value) > ID_BYTES_MAX:
        raise RequestRefused(Reason.BAD_ID, f"postdate-id must have 1 to {ID_BYTES_MAX} bytes")
    try:
        value.decode()
    except UnicodeDecodeError:
        raise RequestRefused(Reason.BAD_ID, f"postdate-id {quote(value)} is not UTF-8") from None
    return value


def _grace_ms(rules: RequestRules, value: bytes | None) -> int:
    try:
        return rules.parse_delay_ms(value)
    except ValueError as error:
        raise RequestRefused(Reason.BAD_TIME, f"postdate-grace {quote(value)} {error}") from None


def _offset_of_origin(rules: RequestRules, partition: int, value: bytes | None) -> int:
    """Returns the offset of the request whose origin is `value`. The request must lie in this partition."""
    try:
        topic, named_partition, offset = parse_origin(value or b"")
    except ValueError as error:
        raise RequestRefused(Reason.BAD_ID, f"postdate-origin {quote(value)} {error}") from None
    if (topic, named_partition) != (rules.topic, partition):
        raise RequestRefused(
            Reason.BAD_ID,
            f"postdate-origin names a request of {topic}, partition {named_partition}: produce this record there, "
            f"not to {rules.topic}, partition {partition}",
        )
    return offset
