"""Goal: partitions that the group has assigned to no member are assigned again, once. Otherwise nothing is assigned
again.

Method: an admin client returns scripted members, and each test runs the check as a member with a given id.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

import pytest

from postdate.kafka.interface import Admin, GroupMember, Partition, TopicInfo
from postdate.sidecar.group.limits import UNASSIGNED_CHECKS_MIN
from postdate.sidecar.group.unassigned import UnassignedPartitions

R = "requests"


class _Admin:
    def __init__(self) -> None:
        self.members: dict[str, list[int]] = {"a": [0, 1], "b": []}
        self.again: list[tuple[str, str]] = []

    def group_members(self, _: str) -> list[GroupMember]:
        return [
            GroupMember(name, "", "client", "/host", tuple(Partition(R, index) for index in parts))
            for name, parts in self.members.items()
        ]

    def describe(self, topics: Iterable[str]) -> dict[str, TopicInfo]:
        return {topic: TopicInfo(topic, "id", dict.fromkeys(range(4), True), {}) for topic in topics}

    def assign_again(self, group_id: str, topic: str) -> None:
        self.again.append((group_id, topic))


@pytest.fixture
def admin() -> _Admin:
    return _Admin()


def _watcher(admin: _Admin, member_id: str) -> UnassignedPartitions:
    return UnassignedPartitions(cast(Admin, admin), "group", [R], lambda: member_id)


def _check(watcher: UnassignedPartitions, times: int) -> None:
    for _ in range(times):
        watcher.check()


def test_partitions_without_an_owner_are_assigned_again_after_some_checks(admin: _Admin) -> None:
    watcher = _watcher(admin, "a")
    _check(watcher, UNASSIGNED_CHECKS_MIN - 1)
    assert admin.again == []
    watcher.check()
    assert admin.again == [("group", f"{R}.dispatch-log")]
    _check(watcher, UNASSIGNED_CHECKS_MIN - 1)
    assert len(admin.again) == 1, "the rebalance has time"
    watcher.check()
    assert len(admin.again) == 2


def test_a_later_member_waits_for_an_earlier_one(admin: _Admin) -> None:
    watcher = _watcher(admin, "b")
    _check(watcher, UNASSIGNED_CHECKS_MIN)
    assert admin.again == []
    watcher.check()
    assert len(admin.again) == 1


def test_a_rebalance_in_progress_is_left_alone(admin: _Admin) -> None:
    watcher = _watcher(admin, "a")
    for owned in ([0, 1], [0], [0, 2], [1], [0, 1, 2], [0, 1, 2, 3]):
        admin.members["a"] = owned
        watcher.check()
    _check(watcher, 10)
    assert admin.again == []


@pytest.mark.parametrize("member_id", ["", "another"])
def test_a_process_that_is_not_a_member_changes_nothing(admin: _Admin, member_id: str) -> None:
    _check(_watcher(admin, member_id), 10)
    assert admin.again == []
