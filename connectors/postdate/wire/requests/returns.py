"""Returns: requests with `postdate-retry`, by which a consumer returns a message to be delivered again later.

Parsing reads a return only from its headers. `schedule_return` adds the parts that depend on its offset: the named
policy, the jitter, and the origin of the first request. The headers contain the whole state of a retry, so it needs no
other storage.

Pure and deterministic, like the parser.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import msgspec

from postdate.wire.errors import RequestRefused
from postdate.wire.headers import ATTEMPT, DUE, ERROR, FIRST_DUE, FIRST_ORIGIN, ID, ORIGIN, RETRY, Headers
from postdate.wire.limits import INTEGER_END, POLICIES_REMEMBERED_MAX, POLICY_TEXT_LENGTH_MAX
from postdate.wire.origins import check_origin, format_origin
from postdate.wire.reasons import Reason
from postdate.wire.requests.request import Request, Return
from postdate.wire.requests.retry_policies import (
    NamedPolicies,
    RetryPolicy,
    delay_ms,
    is_policy_name,
    jitter_ms,
    parse_policy,
)
from postdate.wire.requests.rules import RequestRules
from postdate.wire.values.durations import format_duration
from postdate.wire.values.texts import parse_natural, plain_ms, quote, time_text

NO_POLICIES: Final = NamedPolicies()

_ONCE: Final = (ATTEMPT, FIRST_ORIGIN, FIRST_DUE, ORIGIN)


def read_return(rules: RequestRules, value: bytes | None, left_over: Headers) -> Return:
    """Returns the retry that a return requests. `value`: the value of `postdate-retry`. `left_over`: the headers that
    Postdate added to an earlier delivery.

    Raises RequestRefused (bad-retry, duplicate-header). Cost: O(headers).
    """
    fields = dict(left_over)
    if len(fields) < len(left_over):
        names = [name for name, _ in left_over]
        repeated = next((name for name in _ONCE if names.count(name) > 1), None)
        if repeated is not None:
            raise RequestRefused(Reason.DUPLICATE_HEADER, f"{repeated} is given more than once")
    policy = _policy(value)
    if not isinstance(policy, str) and policy.max_ms > rules.horizon_ms:
        raise RequestRefused(
            Reason.BAD_RETRY,
            f"{RETRY} {quote(value)} has a max of {format_duration(policy.max_ms)}, above the horizon of "
            f"{format_duration(rules.horizon_ms)}",
        )
    if not fields:
        return Return(policy, 1, None, -1, None)
    attempt = _natural(ATTEMPT, fields[ATTEMPT]) + 1 if ATTEMPT in fields else 1
    root_header = FIRST_ORIGIN if FIRST_ORIGIN in fields else ORIGIN
    root = _origin(root_header, fields[root_header]) if root_header in fields else None
    due_header = FIRST_DUE if FIRST_DUE in fields else DUE
    first_due_ms = _natural(due_header, fields[due_header]) if due_header in fields else -1
    return Return(policy, attempt, root, first_due_ms, (ERROR, fields[ERROR]) if ERROR in fields else None)


def schedule_return(
    rules: RequestRules, request: Request, partition: int, offset: int, timestamp_ms: int, policies: NamedPolicies
) -> Request:
    """Returns the request of a return at `offset`, due after its backoff and with the headers of a redelivery.

    `request`: the result of `parse_request` for a return. `policies`: the named policies of the shard. Raises
    RequestRefused (bad-retry, attempts-exhausted, beyond-horizon). Cost: about 2 us.
    """
    retry = request.retry
    assert retry is not None, "only a return is scheduled by its policy"
    policy = retry.policy
    if isinstance(policy, str):
        named = policies.find(policy, offset)
        if named is None:
            raise RequestRefused(Reason.BAD_RETRY, f"{rules.topic} has no retry policy {quote(policy)}")
        policy = named
    attempt = retry.attempt
    if attempt > policy.attempts:
        raise RequestRefused(
            Reason.ATTEMPTS_EXHAUSTED, f"this would be attempt {attempt}, and the policy permits {policy.attempts}"
        )
    origin = format_origin(rules.topic, partition, offset)
    delay = delay_ms(policy, attempt)
    if policy.jitter_percent:
        delay += jitter_ms(policy, delay, origin)
    due_ms = timestamp_ms + delay
    if delay > rules.horizon_ms or due_ms >= INTEGER_END:
        raise RequestRefused(
            Reason.BEYOND_HORIZON,
            f"due {format_duration(delay)} after the request; the horizon is {format_duration(rules.horizon_ms)}",
        )
    first_due_ms = retry.first_due_ms if retry.first_due_ms >= 0 else due_ms
    headers = [*request.headers]
    if request.id:
        headers.append((ID, request.id))
    headers.append((ATTEMPT, b"%d" % attempt))
    headers.append((FIRST_ORIGIN, origin if retry.root is None else retry.root))
    headers.append((FIRST_DUE, b"%d" % first_due_ms))
    if retry.error is not None:
        headers.append(retry.error)
    return msgspec.structs.replace(request, due_ms=due_ms, id=b"", headers=headers, retry=None)


@lru_cache(maxsize=POLICIES_REMEMBERED_MAX)
def _policy(value: bytes | None) -> RetryPolicy | str:
    if value is None or len(value) > POLICY_TEXT_LENGTH_MAX or not value.isascii():
        raise RequestRefused(Reason.BAD_RETRY, f"{RETRY} {quote(value)} is not a policy")
    text = value.decode("ascii")
    if b"=" not in value:
        name = text.strip(" ")
        if not is_policy_name(name):
            raise RequestRefused(Reason.BAD_RETRY, f"{RETRY} {quote(value)} is neither a policy nor the name of one")
        return name
    try:
        return parse_policy(text)
    except ValueError as error:
        raise RequestRefused(Reason.BAD_RETRY, f"{RETRY} {quote(value)} {error}") from None


def _natural(name: str, value: bytes | None) -> int:
    number = plain_ms(value)
    if number >= 0:
        return number
    try:
        return parse_natural(time_text(value))
    except ValueError as error:
        raise RequestRefused(Reason.BAD_RETRY, f"{name} {quote(value)} {error}") from None


def _origin(name: str, value: bytes | None) -> bytes:
    try:
        check_origin(value or b"")
    except ValueError as error:
        raise RequestRefused(Reason.BAD_RETRY, f"{name} {quote(value)} {error}") from None
    assert value is not None, "an origin that parses is a text"
    return value
