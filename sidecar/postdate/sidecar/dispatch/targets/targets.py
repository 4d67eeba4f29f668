"""Metadata of target topics: existence, leaders, size limits.

A message is produced only to a topic that exists according to metadata, since one unknown topic fails the whole
transaction after seconds. A target that metadata shows as unusable is marked as failing since that moment; the shard
parks its entries, and metadata is requested again after a delay that doubles. Faults of produced records are kept in
`fault_attribution`, not here.

Look-ups never block the shard. One request is in progress at a time, and its answer is polled. Only the first look-up
of a new target waits, for at most TARGET_LOOKUP_WAIT_MS. If look-ups fail, known targets stay as they were, and the
next look-up follows after a delay that grows.

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


#: A wait shorter than this is skipped: a clock may not resolve it.
_WAIT_MS_MIN = 0.01


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why an entry ends as a dead letter: the reason, and a sentence for a person."""

    reason: Reason
    detail: str


@dataclass(slots=True)
class Target:
    """The last known metadata of one target topic. `failing_since` is steady time in ms, -1.0 while it is usable."""

    name: str
    partitions: int = 0
    size_bytes_max: int = SIZE_UNKNOWN_BYTES
    compacted: bool = False
    looked_at: float = -1.0
    failing_since: float = -1.0
    probe_at: float = 0.0
    probe_delay_ms: float = TARGET_PROBE_MS_MIN
    reason: Reason = Reason.UNKNOWN_TARGET
    detail: str = ""

    @property
    def works(self) -> bool:
        """True if, according to metadata, messages can be produced to it."""
        return self.failing_since < 0


class Targets:
    """The targets of one shard."""

    def __init__(self, admin: Admin, clock: Clock) -> None:
        self._admin = admin
        self._clock = clock
        self._known: dict[str, Target] = {}
        self._wanted: dict[str, None] = {}
        self._asked: tuple[str, ...] = ()
        self._ask_max = TARGETS_KNOWN_MAX
        """How many are looked up at once: fewer after a failure, so that one name cannot make all others fail for
        long."""
        self._look: Callable[[float], LookedUp] | None = None
        self._asked_at = 0.0
        self._retry_at = 0.0
        self._retry_delay_ms: float = BACKOFF_MS_MIN
        self._unanswered_since = -1.0
        """Steady time in ms of the first look-up that failed since the last one that was answered; -1.0 if none has
        failed since."""

    def get(self, name: str) -> Target | None:
        """Returns the target if it has been looked up, in O(1); else None."""
        return self._known.get(name)

    def learn(self, names: Iterable[str], *, again: bool = False) -> None:
        """Looks up unknown targets among these, or `again` all of them, and waits a little for the answer.

        Afterwards `get` may still return None or an old answer, if the new one is late or missing; entries of that
        target wait then. A late look-up is not waited for again, nor is any while look-ups fail.
        """
        wanted = [name for name in dict.fromkeys(names) if again or name not in self._known][:TARGETS_KNOWN_MAX]
        if not wanted:
            return
        self._wanted |= dict.fromkeys(wanted)
        now = self._clock.steady_ms()
        until = (self._asked_at if self._look is not None else now) + TARGET_LOOKUP_WAIT_MS
        while self.is_looking_at(wanted):
            self.poll(max(until - now, 0.0))
            now = self._clock.steady_ms()
            if self._look is None or until - now < _WAIT_MS_MIN:
                return

    def look_again(self, names: Iterable[str]) -> None:
        """Looks up these targets as soon as possible, however fresh their metadata is."""
        for name in names:
            self._wanted[name] = None
        self.poll()

    def expect(self, names: Iterable[str]) -> None:
        """Messages for these targets have become due. Look again at those that fail, about once a second: a topic may
        have been created. Never waits."""
        now = self._clock.steady_ms()
        for name in names:
            target = self._known.get(name)
            if target is not None and not target.works:
                target.probe_at = min(target.probe_at, target.looked_at + TARGET_FRESH_MS_MAX)
                if target.probe_at <= now:
                    self._wanted[name] = None
        self.poll()

    def refresh(self) -> None:
        """Requests metadata of targets that are stale, or failing and due for a probe. Never waits."""
        now = self._clock.steady_ms()
        for target in self._known.values():
            if target.probe_at <= now if not target.works else now - target.looked_at > TARGET_LOOKUP_AGE_MS_MAX:
                self._wanted[target.name] = None
        self.poll()

    def poll(self, wait_ms: float = 0.0) -> None:
        """Processes the pending answer if it arrives within `wait_ms`, and sends the next request."""
        if self._look is None and not self._ask():
            return
        assert self._look is not None, "asked just now"
        try:
            found = self._look(wait_ms / 1000)
        except KafkaFault as fault:
            self._failed(fault)
            return
        if found is not None:
            asked, self._asked, self._look = self._asked, (), None
            self._answered()
            self._retry_delay_ms, self._ask_max = BACKOFF_MS_MIN, min(self._ask_max * 2, TARGETS_KNOWN_MAX)
            for name in asked:
                self._saw(name, found.get(name))
            self._ask()

    def is_looking_at(self, names: Iterable[str]) -> bool:
        """True while a look-up of one of these is queued or in progress."""
        return any(name in self._wanted or name in self._asked for name in names)

    def limit(self, name: str, size_bytes_max: int) -> None:
        """Records that a topic refused a record of more than `size_bytes_max`, in spite of its known settings."""
        target = self._known.get(name)
        if target is not None:
            target.size_bytes_max = min(target.size_bytes_max, size_bytes_max)

    def _ask(self) -> bool:
        """Starts a look-up of the queued targets; False if there are none, or if the last look-up failed recently."""
        now = self._clock.steady_ms()
        if not self._wanted or now < self._retry_at:
            return False
        asked = tuple(islice(self._wanted, self._ask_max))
        try:
            self._look = self._admin.look_up(asked, (_SIZE_SETTING, _CLEANUP_SETTING))
        except KafkaFault as fault:
            self._failed(fault)
            return False
        self._asked, self._asked_at = asked, now
        for name in asked:
            del self._wanted[name]
        return True

    def _answered(self) -> None:
        """Returns the time without an answer does not count as time in which a target fails. But the first second after
        its own last look-up counts: other look-ups may fail again and again."""
        if self._unanswered_since < 0:
            return
        for target in self._known.values():
            if not target.works:
                since = max(self._unanswered_since, target.looked_at + TARGET_FRESH_MS_MAX)
                target.failing_since += max(self._asked_at - since, 0.0)
        self._unanswered_since = -1.0

    def _failed(self, fault: KafkaFault) -> None:
        log.warning("targets cannot be looked up, next try in %d ms: %s", self._retry_delay_ms, fault)
        if self._unanswered_since < 0:
            self._unanswered_since = self._asked_at if self._asked else self._clock.steady_ms()
        self._wanted |= dict.fromkeys(self._asked)
        self._asked, self._look = (), None
        self._ask_max = max(self._ask_max // 2, 1)
        self._retry_at = self._clock.steady_ms() + self._retry_delay_ms
        self._retry_delay_ms = min(self._retry_delay_ms * 2, TARGET_PROBE_MS_MAX)

    def _saw(self, name: str, info: TopicInfo | None) -> None:
        if name not in self._known and len(self._known) >= TARGETS_KNOWN_MAX:
            del self._known[next(iter(self._known))]
        target = self._known.setdefault(name, Target(name))
        target.looked_at = self._asked_at
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
