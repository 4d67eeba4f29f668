"""What is known of the topics that messages go to: existence, leaders, size limits, and failures.

A message is never produced to a topic that metadata has not shown to be there, for one unknown topic in a transaction
makes the whole commit fail after seconds. A target that fails is marked failing since a moment; its entries are
parked by the shard and the target is looked at again with a growing delay. Once the retry budget of an entry is used
up it ends as a dead letter with the target's reason.

Thread rule: one instance a shard, used by its thread alone.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass

from postdate.connectors.kafka.seam import Admin
from postdate.connectors.wire.reasons import Reason
from postdate.sidecar.clock import Clock
from postdate.sidecar.limits import (
    TARGET_LOOK_AGE_MS_MAX,
    TARGET_PROBE_MS_MAX,
    TARGET_PROBE_MS_MIN,
    TARGETS_KNOWN_MAX,
)

log = logging.getLogger(__name__)

_SIZE_SETTING = "max.message.bytes"
_CLEANUP_SETTING = "cleanup.policy"
SIZE_UNKNOWN_BYTES = 2**31


@dataclass(slots=True)
class Target:
    """One target topic as last seen. `failing_since` is steady time in ms, -1.0 while the target works."""

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
    on_trial: bool = False
    refused: bool = False  # a produce failed, which metadata cannot show to be mended: only a trial can

    @property
    def works(self) -> bool:
        """True where messages may be produced to it: it never failed, or it is tried again after a refusal."""
        return self.failing_since < 0 or self.on_trial


class Targets:
    """The targets of one shard."""

    def __init__(self, admin: Admin, clock: Clock) -> None:
        self._admin = admin
        self._clock = clock
        self._known: dict[str, Target] = {}

    def get(self, name: str) -> Target | None:
        """The target if it has been looked at, in O(1); None where `learn` must be called first."""
        return self._known.get(name)

    def learn(self, names: Iterable[str]) -> None:
        """Look at these targets: one metadata request for all of them, and one for their size limits.

        Raises Unreachable, NotAuthorized: nothing has been learned, try again later.
        """
        wanted = [name for name in dict.fromkeys(names) if name not in self._known]
        if wanted:
            while len(self._known) + len(wanted) > TARGETS_KNOWN_MAX and self._known:
                del self._known[next(iter(self._known))]
            self._look(wanted)

    def refresh(self) -> list[Target]:
        """Look again at what is old or failing and due for a probe; returns the targets that work again.

        Raises as `learn`.
        """
        now = self._clock.steady_ms()
        stale = [
            t.name
            for t in self._known.values()
            if (t.probe_at <= now if not t.works else now - t.looked_at > TARGET_LOOK_AGE_MS_MAX)
        ]
        failing = {name for name in stale if not self._known[name].works}
        if stale:
            self._look(stale)
        return [self._known[name] for name in failing if self._known[name].works]

    def all_work(self) -> bool:
        """True where no target fails, as far as is known. O(known)."""
        return all(target.works for target in self._known.values())

    def look_again(self, name: str) -> None:
        """Look at a target now, whenever its next probe is due. Raises as `learn`."""
        self._look([name])

    def fail(self, name: str, reason: Reason, detail: str) -> None:
        """Note that producing to `name` failed for a reason that lies in the topic and not in one record."""
        target = self._known.setdefault(name, Target(name))
        target.refused = True
        self._mark_failing(target, reason, detail)

    def limit(self, name: str, size_bytes_max: int) -> None:
        """Note that a topic refused a record of more than `size_bytes_max`, whatever its settings seemed to be."""
        target = self._known.get(name)
        if target is not None:
            target.size_bytes_max = min(target.size_bytes_max, size_bytes_max)

    def delivered(self, names: Iterable[str]) -> None:
        """A transaction with messages for these was committed: those on trial have passed."""
        for name in names:
            target = self._known.get(name)
            if target is not None and target.on_trial:
                target.on_trial = target.refused = False
                target.failing_since, target.probe_delay_ms = -1.0, TARGET_PROBE_MS_MIN
                log.info("target %s works again", target.name)

    def _look(self, names: list[str]) -> None:
        now = self._clock.steady_ms()
        seen = self._admin.describe(names, (_SIZE_SETTING, _CLEANUP_SETTING))
        for name in names:
            target = self._known.setdefault(name, Target(name))
            target.looked_at = now
            info = seen.get(name)
            if info is None:
                self._mark_failing(target, Reason.UNKNOWN_TARGET, f"topic {name} does not exist")
            elif not info.writable:
                self._mark_failing(target, Reason.UNAUTHORIZED, f"no ACL allows to write to topic {name}")
            elif not all(info.partitions.values()):
                missing = [index for index, led in sorted(info.partitions.items()) if not led]
                target.partitions = len(info.partitions)
                self._mark_failing(target, Reason.TARGET_UNAVAILABLE, f"topic {name} has no leader for {missing[:8]}")
            else:
                target.partitions = len(info.partitions)
                target.size_bytes_max = int(info.config.get(_SIZE_SETTING, SIZE_UNKNOWN_BYTES))
                target.compacted = "compact" in info.config.get(_CLEANUP_SETTING, "")
                if target.refused:
                    target.on_trial = True
                else:
                    target.failing_since, target.probe_delay_ms = -1.0, TARGET_PROBE_MS_MIN

    def _mark_failing(self, target: Target, reason: Reason, detail: str) -> None:
        now = self._clock.steady_ms()
        target.on_trial = False
        if target.failing_since < 0:
            target.failing_since = now
            target.probe_delay_ms = TARGET_PROBE_MS_MIN
            log.warning("target %s fails (%s): %s", target.name, reason, detail)
        else:
            target.probe_delay_ms = min(target.probe_delay_ms * 2, TARGET_PROBE_MS_MAX)
        target.reason, target.detail = reason, detail
        target.probe_at = now + target.probe_delay_ms
