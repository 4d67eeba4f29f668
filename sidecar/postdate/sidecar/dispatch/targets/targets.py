"""Keeps the metadata of target topics: existence, leaders, size limits.

A message is produced only to a topic that exists according to metadata, since one unknown topic fails the whole
transaction after seconds. If the metadata shows that a target is unusable, the target is marked as failing: the shard
parks its entries, and requests the metadata again after a delay that doubles. `fault_attribution`, not this module,
keeps the faults of produced records.

One look-up is in progress at a time, and its answer is polled. Only `look_up` waits for an answer, for at most
TARGET_LOOKUP_WAIT_MS. If a look-up fails, known targets keep their state, and the next look-up follows after a delay
that doubles.

Thread rule: one instance per shard, used by its thread alone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice

from postdate.kafka.errors import KafkaFault
from postdate.kafka.interface import Admin, LookedUp, TopicInfo
from postdate.sidecar.clock import Clock
from postdate.sidecar.dispatch.limits import (
    TARGET_FRESH_MS_MAX,
    TARGET_LOOKUP_AGE_MS_MAX,
    TARGET_LOOKUP_WAIT_MS,
    TARGET_PROBE_MS_MAX,
    TARGET_PROBE_MS_MIN,
    TARGETS_KNOWN_MAX,
)
from postdate.sidecar.limits import BACKOFF_MS_MIN
from postdate.wire.reasons import Reason

log = logging.getLogger(__name__)

_SIZE_SETTING = "max.message.bytes"
_CLEANUP_SETTING = "cleanup.policy"
SIZE_UNKNOWN_BYTES = 2**31


#: A shorter wait is skipped: a clock may not resolve it.
_WAIT_MS_MIN = 0.01


@dataclass(frozen=True, slots=True)
class Refusal:
    """The reason why an entry becomes a dead letter. `detail`: a sentence for the operator."""

    reason: Reason
    detail: str


@dataclass(slots=True)
class Target:
    """The last known metadata of one target topic. Times are steady ms. `failing_since`: -1.0 while the target is
    usable."""

    name: str
    partitions: int = 0
    size_bytes_max: int = SIZE_UNKNOWN_BYTES
    compacted: bool = False
    looked_up_at: float = -1.0
    failing_since: float = -1.0
    probe_at: float = 0.0
    probe_delay_ms: float = TARGET_PROBE_MS_MIN
    reason: Reason = Reason.UNKNOWN_TARGET
    detail: str = ""

    @property
    def works(self) -> bool:
        """True if messages can be produced to the target, according to its metadata."""
        return self.failing_since < 0


class Targets:
    """The targets of one shard."""

    def __init__(self, admin: Admin, clock: Clock) -> None:
        self._admin = admin
        self._clock = clock
        self._known: dict[str, Target] = {}
        self._wanted: dict[str, None] = {}
        self._requested: tuple[str, ...] = ()
        self._request_max = TARGETS_KNOWN_MAX
        """The most targets of one look-up. Each failure halves it, so that one name cannot make the look-ups of all
        others fail for long."""
        self._pending_lookup: Callable[[float], LookedUp] | None = None
        self._requested_at = 0.0
        self._retry_at = 0.0
        self._retry_delay_ms: float = BACKOFF_MS_MIN
        self._unanswered_since = -1.0
        """The steady time in ms at which the first failed look-up since the last answer was requested; -1.0 if none has
        failed."""

    def get(self, name: str) -> Target | None:
        """Returns the target; None if it has not been looked up. O(1)."""
        return self._known.get(name)

    def look_up(self, names: Iterable[str], *, again: bool = False) -> None:
        """Looks up the unknown targets of `names`, or with `again` all of them, and waits for the answer for at most
        TARGET_LOOKUP_WAIT_MS.

        Afterwards `get` may still return None or an old state, if the answer is late or the look-up failed; then
        entries of that target must wait. Once a look-up is late, further calls do not wait for it. Does not wait while
        look-ups fail.
        """
        wanted = [name for name in dict.fromkeys(names) if again or name not in self._known][:TARGETS_KNOWN_MAX]
        if not wanted:
            return
        self._wanted |= dict.fromkeys(wanted)
        now = self._clock.steady_ms()
        until = (self._requested_at if self._pending_lookup is not None else now) + TARGET_LOOKUP_WAIT_MS
        while self.is_lookup_pending(wanted):
            self.poll(max(until - now, 0.0))
            now = self._clock.steady_ms()
            if self._pending_lookup is None or until - now < _WAIT_MS_MIN:
                return

    def refresh_soon(self, names: Iterable[str]) -> None:
        """Looks up these targets as soon as possible, even if their metadata is fresh. Never waits."""
        for name in names:
            self._wanted[name] = None
        self.poll()

    def expect(self, names: Iterable[str]) -> None:
        """Notes that messages for these targets have become due. Looks up failing targets again, at most about once a
        second, since a topic may have been created. Never waits."""
        now = self._clock.steady_ms()
        for name in names:
            target = self._known.get(name)
            if target is not None and not target.works:
                target.probe_at = min(target.probe_at, target.looked_up_at + TARGET_FRESH_MS_MAX)
                if target.probe_at <= now:
                    self._wanted[name] = None
        self.poll()

    def refresh(self) -> None:
        """Requests metadata of targets whose metadata is stale, or which fail and are due for a probe. Never waits."""
        now = self._clock.steady_ms()
        for target in self._known.values():
            if target.probe_at <= now if not target.works else now - target.looked_up_at > TARGET_LOOKUP_AGE_MS_MAX:
                self._wanted[target.name] = None
        self.poll()

    def poll(self, wait_ms: float = 0.0) -> None:
        """Processes the pending answer if it arrives within `wait_ms`, and sends the next request."""
        if self._pending_lookup is None and not self._send_request():
            return
        assert self._pending_lookup is not None, "requested just now"
        try:
            topics = self._pending_lookup(wait_ms / 1000)
        except KafkaFault as fault:
            self._failed(fault)
            return
        if topics is not None:
            requested, self._requested, self._pending_lookup = self._requested, (), None
            self._answered()
            self._retry_delay_ms, self._request_max = BACKOFF_MS_MIN, min(self._request_max * 2, TARGETS_KNOWN_MAX)
            for name in requested:
                self._update(name, topics.get(name))
            self._send_request()

    def is_lookup_pending(self, names: Iterable[str]) -> bool:
        """True while a look-up of one of these targets is queued or in progress."""
        return any(name in self._wanted or name in self._requested for name in names)

    def limit(self, name: str, size_bytes_max: int) -> None:
        """Lowers the size limit of a topic that refused a larger record, although its known settings allow the
        record."""
        target = self._known.get(name)
        if target is not None:
            target.size_bytes_max = min(target.size_bytes_max, size_bytes_max)

    def _send_request(self) -> bool:
        """Starts a look-up of the queued targets. Returns False if no target is queued, if the pause after a failure is
        not over, or if the request fails."""
        now = self._clock.steady_ms()
        if not self._wanted or now < self._retry_at:
            return False
        requested = tuple(islice(self._wanted, self._request_max))
        try:
            self._pending_lookup = self._admin.look_up(requested, (_SIZE_SETTING, _CLEANUP_SETTING))
        except KafkaFault as fault:
            self._failed(fault)
            return False
        self._requested, self._requested_at = requested, now
        for name in requested:
            del self._wanted[name]
        return True

    def _answered(self) -> None:
        """Excludes the time without an answer from the time for which targets have failed. The first second after a
        target's last look-up still counts: otherwise failing look-ups of other targets could postpone its dead letters
        for ever."""
        if self._unanswered_since < 0:
            return
        for target in self._known.values():
            if not target.works:
                since = max(self._unanswered_since, target.looked_up_at + TARGET_FRESH_MS_MAX)
                target.failing_since += max(self._requested_at - since, 0.0)
        self._unanswered_since = -1.0

    def _failed(self, fault: KafkaFault) -> None:
        log.warning("targets cannot be looked up, next try in %d ms: %s", self._retry_delay_ms, fault)
        if self._unanswered_since < 0:
            self._unanswered_since = self._requested_at if self._requested else self._clock.steady_ms()
        self._wanted |= dict.fromkeys(self._requested)
        self._requested, self._pending_lookup = (), None
        self._request_max = max(self._request_max // 2, 1)
        self._retry_at = self._clock.steady_ms() + self._retry_delay_ms
        self._retry_delay_ms = min(self._retry_delay_ms * 2, TARGET_PROBE_MS_MAX)

    def _update(self, name: str, info: TopicInfo | None) -> None:
        if name not in self._known and len(self._known) >= TARGETS_KNOWN_MAX:
            del self._known[next(iter(self._known))]
        target = self._known.setdefault(name, Target(name))
        target.looked_up_at = self._requested_at
        if info is None:
            self._mark_failing(target, Reason.UNKNOWN_TARGET, f"topic {name} does not exist")
        elif not info.writable:
            self._mark_failing(target, Reason.UNAUTHORIZED, f"no ACL allows Write on topic {name}")
        elif not all(info.partitions.values()):
            missing = [index for index, led in sorted(info.partitions.items()) if not led]
            target.partitions = len(info.partitions)
            self._mark_failing(target, Reason.TARGET_UNAVAILABLE, f"topic {name} has no leader for {missing[:8]}")
        else:
            target.partitions = len(info.partitions)
            target.size_bytes_max = int(info.config.get(_SIZE_SETTING, SIZE_UNKNOWN_BYTES))
            target.compacted = "compact" in info.config.get(_CLEANUP_SETTING, "")
            if not target.works:
                log.info("target %s is usable again", name)
            target.failing_since, target.probe_delay_ms = -1.0, TARGET_PROBE_MS_MIN

    def _mark_failing(self, target: Target, reason: Reason, detail: str) -> None:
        now = self._clock.steady_ms()
        if target.failing_since < 0:
            target.failing_since = now
            target.probe_delay_ms = TARGET_PROBE_MS_MIN
            log.warning("target %s fails (%s): %s", target.name, reason, detail)
        else:
            target.probe_delay_ms = min(target.probe_delay_ms * 2, TARGET_PROBE_MS_MAX)
        target.reason, target.detail = reason, detail
        target.probe_at = now + target.probe_delay_ms
