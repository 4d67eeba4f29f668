"""Decides whether a due message leaves, waits, or becomes a dead letter.

A decision depends on the message, the time, the allow-list, and the metadata, faults and holds of the target. It
changes nothing; `batch` carries it out. Most messages need no decision: if one message of a target may leave, all
messages of that target in the transaction may, except those with special conditions (`is_special`).

Thread rule: belongs to the shard's thread.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto

from postdate.sidecar.context.holds import HoldState
from postdate.sidecar.dispatch.limits import DELIVERED_HEADERS_SIZE_BYTES_MAX, TARGET_FRESH_MS_MAX
from postdate.sidecar.dispatch.targets.fault_attribution import FaultAttribution
from postdate.sidecar.dispatch.targets.targets import Refusal, Target
from postdate.wheel.entry import Entry
from postdate.wire.delivered import delivered_headers, extra_headers, occurrence_headers, record_size_bytes
from postdate.wire.limits import BACKFILL_MAX, OCCURRENCES_MAX, RETURNS_VERSION
from postdate.wire.reasons import Reason
from postdate.wire.requests.rules import RequestRules
from postdate.wire.values.durations import format_duration
from postdate.wire.values.instants import format_instant
from postdate.wire.values.texts import counted


class Decision(Enum):
    """The decision about a due message that is not refused. A refused message becomes a dead letter: see `Refusal`."""

    DELIVER = auto()
    """It leaves with this transaction."""
    DEFER = auto()
    """It stays where it is until its target has been looked up, for the first time or again. If the answer is late, it
    is parked."""
    PARK = auto()
    """It is parked before any transaction: its target is held, fails or is isolated, or an earlier message for that
    target is parked."""
    PARK_FOR_RATE = auto()
    """It is parked in the write that follows the transaction: its target has reached its rate, or earlier messages for
    that target still wait for the rate."""


class MessageRules:
    """The rules for the messages of one shard."""

    def __init__(
        self,
        target_of: Callable[[str], Target | None],
        rules: RequestRules,
        faults: FaultAttribution,
        retry_budget_ms: int,
        held: HoldState,
        origin_prefix: bytes,
    ) -> None:
        """`rules`: the rules of the shard's request topic. `origin_prefix`: the prefix of the origins of the shard's
        requests."""
        self.target_of = target_of
        self._rules = rules
        self.faults = faults
        self._budget_ms = retry_budget_ms
        self._held = held
        self._longest_origin = origin_prefix + b"9" * 19
        self.writes_version_2 = rules.format_version >= RETURNS_VERSION

    def decide(
        self, entry: Entry, size_bytes: int, now_ms: int, steady_ms: float, trial: str | None
    ) -> Decision | Refusal:
        """Returns the decision about a message of kind DELIVER. `size_bytes`: the size of its encoded entry. `trial`:
        the isolated target if this transaction is its trial; None for all others, also for a trial of OWN."""
        if not self._rules.permits(entry.target):  # the allow-list may be narrower than when the request was accepted
            detail = f"{entry.target} is not among the targets that {self._rules.topic} allows"
            return Refusal(Reason.FORBIDDEN_TARGET, detail)
        if entry.target in self._held.current.targets:
            return Decision.PARK
        target = self.target_of(entry.target)
        if target is None:
            return Decision.DEFER
        if entry.grace_ms >= 0 and now_ms > entry.due + entry.grace_ms:
            due, grace = format_instant(entry.due), format_duration(entry.grace_ms)
            detail = f"due at {due}; its grace of {grace} was over at {format_instant(now_ms)}"
            return Refusal(Reason.EXPIRED, detail)
        if not target.works:
            waited, spent_ms = steady_ms - target.failing_since, entry.due + self._budget_ms
            looked_up_ms = now_ms - (steady_ms - target.looked_up_at)
            # A look-up before the end of the budget must be fresh, since the target may be usable by now. For a request
            # that is stamped in the future, a fresh look-up is enough, since none can be later than the request.
            fresh_ms = now_ms - TARGET_FRESH_MS_MAX
            accepted_ms = entry.accepted_ms if entry.accepted_ms <= now_ms else fresh_ms
            is_known = looked_up_ms >= max(accepted_ms, min(spent_ms, fresh_ms))
            if waited >= self._budget_ms and now_ms >= spent_ms and is_known:
                return Refusal(target.reason, target.detail)
            return Decision.PARK
        if self.faults.any and entry.target != trial and self.faults.get(entry.target) is not None:
            return self.faults.spent(entry.target, entry.due, now_ms) or Decision.PARK
        refusal = self._refusal(entry, size_bytes, target)
        age_ms = steady_ms - target.looked_up_at
        if refusal is not None and age_ms > TARGET_FRESH_MS_MAX and now_ms - age_ms < entry.accepted_ms:
            return Decision.DEFER  # the topic may have changed after the look-up, before the request
        return refusal or Decision.DELIVER

    def _refusal(self, entry: Entry, size_bytes: int, target: Target) -> Refusal | None:
        """Returns the reason why a target cannot accept a message according to its metadata; None if it can.
        `size_bytes`: the size of the encoded entry."""
        if entry.partition >= target.partitions:
            partitions = counted(target.partitions, "partition")
            detail = f"topic {entry.target} has {partitions}, there is no {entry.partition}"
            return Refusal(Reason.BAD_PARTITION, detail)
        if entry.key is None and target.compacted:
            return Refusal(Reason.BAD_KEY, f"topic {entry.target} is compacted and takes no message without a key")
        if size_bytes + DELIVERED_HEADERS_SIZE_BYTES_MAX > target.size_bytes_max:
            size = self.delivered_size_bytes(entry)
            if size > target.size_bytes_max:
                detail = f"{size} bytes are more than the {target.size_bytes_max} that {entry.target} takes"
                return Refusal(Reason.TOO_LARGE, detail)
        return None

    def delivered_size_bytes(self, entry: Entry) -> int:
        """Returns the size in bytes of the delivered record with the longest possible origin. For a schedule, this is
        the largest record that the next transaction may deliver. O(headers)."""
        origin, following = self._longest_origin, entry.next
        if following is None:
            headers = delivered_headers(entry.headers, origin, entry.requested_due, entry.id)
            return record_size_bytes(entry.key, entry.value, headers)
        number, times_ms = following.number + OCCURRENCES_MAX, (following.nominal_ms, following.nominal_ms)
        sent = [occurrence_headers(entry.headers, origin, entry.id, number, times_ms)]
        if following.extras:
            _, _, nominal_ms, _, _ = following.extras[0]
            extra = origin + b"/%d" % BACKFILL_MAX
            sent.append(extra_headers(entry.headers, origin, entry.id, extra, nominal_ms))
        return max(record_size_bytes(entry.key, entry.value, headers) for headers in sent)


def is_special(entry: Entry, size_bytes: int, target: Target) -> bool:
    """True if the delivery of a message depends on more than the state of its target."""
    return (
        entry.grace_ms >= 0
        or entry.partition >= target.partitions
        or (entry.key is None and target.compacted)
        or size_bytes + DELIVERED_HEADERS_SIZE_BYTES_MAX > target.size_bytes_max
    )
