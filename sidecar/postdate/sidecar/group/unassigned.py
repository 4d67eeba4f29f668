"""Finds partitions that the group has assigned to no member, and makes the group assign its partitions again.

With the protocol classic a rebalance that moves partitions takes two rounds: the first takes them from their owner,
which then joins again, and the second gives them to other members. If the owner is a static member and is killed
between the rounds, its successor gets only the partitions that the first round left to the owner, without a new round.
So no member gets the other partitions until the membership changes. Measured: two of four partitions had no owner for
eight minutes, until the run was ended.

Thread rule: a separate thread calls `watch`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence

from postdate.kafka.errors import KafkaFault
from postdate.kafka.interface import Admin, Partition
from postdate.sidecar.group.limits import UNASSIGNED_CHECK_INTERVAL_S, UNASSIGNED_CHECKS_MIN
from postdate.wire.topics import OwnTopics

log = logging.getLogger(__name__)


class UnassignedPartitions:
    """Compares the assignments of a group with the partitions of its request topics."""

    def __init__(self, admin: Admin, group_id: str, topics: Sequence[str], member_id: Callable[[], str]) -> None:
        """`member_id`: returns the id of this process's member; empty if it has not joined."""
        self._admin = admin
        self._group_id = group_id
        self._topics = topics
        self._member_id = member_id
        self._missing: tuple[Partition, ...] = ()
        self._checks = 0

    def watch(self, ended: threading.Event) -> None:
        """Checks at an interval until `ended`."""
        while not ended.wait(UNASSIGNED_CHECK_INTERVAL_S):
            try:
                self.check()
            except KafkaFault as fault:
                log.info("the assignments of the group could not be checked: %s", fault)

    def check(self) -> None:
        """Makes the group assign its partitions again if the same partitions have had no owner in several consecutive
        checks. Raises KafkaFault.

        A member that runs no such check, such as one of an older version, must not stop the other members from acting.
        So the members act in the order of their ids, each one check later than the member before it.
        """
        members = self._admin.group_members(self._group_id)
        ids = sorted(member.member_id for member in members)
        if self._member_id() not in ids:
            self._missing = ()
            return
        topics = self._admin.describe(self._topics)
        parts = {Partition(name, index) for name, info in topics.items() for index in info.partitions}
        missing = tuple(sorted(parts.difference(*(member.partitions for member in members))))
        self._checks = self._checks + 1 if missing == self._missing else 1
        self._missing = missing
        if not missing or self._checks < UNASSIGNED_CHECKS_MIN + ids.index(self._member_id()):
            return
        log.warning(
            "no member of the group has %s: the group assigns its partitions again",
            ", ".join(f"{part.topic}/{part.index}" for part in missing),
        )
        self._missing = ()
        self._admin.assign_again(self._group_id, OwnTopics.of(self._topics[0]).dispatch_log)
