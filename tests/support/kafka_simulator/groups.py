"""The group coordinator: members, the target assignment, the present owners, and committed offsets.

Rebalancing is cooperative, in two steps: the owner first gives a partition back, and then its owner in the target
assignment takes it. A member without a heartbeat for the session time-out is removed, and its partitions become free.

Thread rule: one thread.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from confluent_kafka import KafkaError

from postdate.kafka import limits
from postdate.kafka.interface import GroupMember, Partition
from support.kafka_simulator.error_responses import refusal
from support.kafka_simulator.time import SimTime

#: Returns the number of partitions of a topic; 0 if it does not exist.
Partitions = Callable[[str], int]


@dataclass
class _Member:
    member_id: str
    instance_id: str
    client_id: str
    topics: tuple[str, ...]
    seen_ms: float


@dataclass
class _Group:
    members: dict[str, _Member] = field(default_factory=dict)
    meant: dict[Partition, str] = field(default_factory=dict)
    held: dict[Partition, str] = field(default_factory=dict)
    offsets: dict[Partition, int] = field(default_factory=dict)
    notes: dict[Partition, str] = field(default_factory=dict)
    generation: int = 0
    balanced: tuple[object, ...] = ()  # the members and partitions from which `meant` was computed


class GroupCoordinator:
    """All consumer groups of the cluster."""

    def __init__(self, time: SimTime, partitions: Partitions) -> None:
        self._time = time
        self._partitions = partitions
        self._groups: dict[str, _Group] = {}
        self._numbers = itertools.count(1)
        self._fenced: set[str] = set()
        self.session_timeout_ms = float(limits.SESSION_TIMEOUT_MS)

    def join(self, group_id: str, topics: Sequence[str], instance_id: str, client_id: str = "simulated") -> str:
        """Returns a new member id. A static member takes over the partitions of the member with the same name, and
        fences it."""
        group = self._groups.setdefault(group_id, _Group())
        member_id = f"{group_id}-member-{next(self._numbers)}"
        for old in [member for member in group.members.values() if instance_id and member.instance_id == instance_id]:
            del group.members[old.member_id]
            self._fenced.add(old.member_id)
            group.meant = {p: member_id if owner == old.member_id else owner for p, owner in group.meant.items()}
            group.held = {p: owner for p, owner in group.held.items() if owner != old.member_id}
        group.members[member_id] = _Member(member_id, instance_id, client_id, tuple(topics), self._time.now_ms)
        self._balance(group)
        return member_id

    def heartbeat(self, group_id: str, member_id: str) -> frozenset[Partition]:
        """Handles a heartbeat; returns the partitions of this member in the target assignment.

        Raises UNKNOWN_MEMBER_ID if the member was removed and must join again, and FENCED_INSTANCE_ID.
        """
        group = self._groups.setdefault(group_id, _Group())
        self._expire(group)
        if member_id in self._fenced:
            raise refusal(KafkaError.FENCED_INSTANCE_ID, "another member has the same group.instance.id")
        if member_id not in group.members:
            raise refusal(KafkaError.UNKNOWN_MEMBER_ID, "the group does not know this member")
        group.members[member_id].seen_ms = self._time.now_ms
        self._balance(group)
        return frozenset(part for part, owner in group.meant.items() if owner == member_id)

    def take(self, group_id: str, member_id: str, parts: Iterable[Partition]) -> list[Partition]:
        """Makes this member the owner of those partitions that have no other owner; returns them. Empty if the member
        was removed."""
        group = self._groups[group_id]
        if member_id not in group.members:
            return []
        return [part for part in sorted(parts) if group.held.setdefault(part, member_id) == member_id]

    def give(self, group_id: str, member_id: str, parts: Iterable[Partition]) -> None:
        """Gives partitions back."""
        group = self._groups.get(group_id, _Group())
        for part in parts:
            if group.held.get(part) == member_id:
                del group.held[part]

    def leave(self, group_id: str, member_id: str, for_good: bool = False) -> None:
        """Leaves the group; a static member stays until its session times out, unless it leaves `for_good`."""
        group = self._groups.get(group_id, _Group())
        member = group.members.get(member_id)
        if member is not None and (for_good or not member.instance_id):
            self._remove(group, member_id)
            self._balance(group)

    def holds(self, group_id: str, member_id: str, part: Partition) -> bool:
        """True if the member is in the group and owns the partition."""
        group = self._groups.get(group_id, _Group())
        self._expire(group)
        return member_id in group.members and group.held.get(part) == member_id

    def commit(self, group_id: str, part: Partition, offset: int, note: str = "") -> None:
        """Stores the group's offset and its metadata."""
        group = self._groups.setdefault(group_id, _Group())
        group.offsets[part], group.notes[part] = offset, note

    def note(self, group_id: str, part: Partition) -> str:
        """Returns the metadata of the committed offset."""
        return self._groups.get(group_id, _Group()).notes.get(part, "")

    def offset(self, group_id: str, part: Partition) -> int | None:
        """Returns the committed offset of the group."""
        return self._groups.get(group_id, _Group()).offsets.get(part)

    def knows(self, group_id: str) -> bool:
        """True for a group that has ever had a member or an offset."""
        return group_id in self._groups

    def described(self, group_id: str) -> list[GroupMember]:
        """Returns the members and the partitions that they own."""
        group = self._groups.get(group_id, _Group())
        self._expire(group)
        return [
            GroupMember(
                member.member_id,
                member.instance_id,
                member.client_id,
                "/simulated",
                tuple(sorted(part for part, owner in group.held.items() if owner == member.member_id)),
            )
            for member in group.members.values()
        ]

    def _expire(self, group: _Group) -> None:
        oldest = self._time.now_ms - self.session_timeout_ms
        gone = [member.member_id for member in group.members.values() if member.seen_ms < oldest]
        for member_id in gone:
            self._remove(group, member_id)
        if gone:
            self._balance(group)

    def _remove(self, group: _Group, member_id: str) -> None:
        del group.members[member_id]
        group.held = {part: owner for part, owner in group.held.items() if owner != member_id}

    def _balance(self, group: _Group) -> None:
        """Computes the target assignment: partitions are divided evenly, and a partition stays with its owner if that
        is fair."""
        topics = {topic for member in group.members.values() for topic in member.topics}
        present = (*group.members, *sorted((topic, self._partitions(topic)) for topic in topics))
        if present == group.balanced:
            return
        group.balanced = present
        parts = sorted(Partition(topic, index) for topic in topics for index in range(self._partitions(topic)))
        if not group.members:
            group.meant = {}
            return
        quota, extra = divmod(len(parts), len(group.members))
        counts = {member_id: 0 for member_id in group.members}
        meant: dict[Partition, str] = {}
        for part in parts:  # partitions that stay with their owner, up to a fair share
            owner = group.meant.get(part, "")
            if owner in counts and (counts[owner] < quota or (counts[owner] == quota and extra)):
                extra -= counts[owner] == quota
                counts[owner] += 1
                meant[part] = owner
        for part in parts:
            if part not in meant:
                meant[part] = min(counts, key=lambda member_id: counts[member_id])
                counts[meant[part]] += 1
        if meant != group.meant:
            group.meant = meant
            group.generation += 1
