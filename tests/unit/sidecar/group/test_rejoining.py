"""Goal: a process whose client in the group fails joins again with a new client, and does not try for ever.

Method: the real poller runs over the simulated cluster, whose time the test moves. The shards are stubs that count
their releases. Clients of the same name fence each other as on a real broker.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import cast

import pytest

from postdate.kafka.errors import FatalClient, Fenced, NameInUse, OtherProtocol, SettingRefused
from postdate.kafka.interface import GroupConsumer, Partition
from postdate.sidecar.context.holds import HoldState
from postdate.sidecar.errors import ClientFailed, Exit
from postdate.sidecar.group import poller as poller_module
from postdate.sidecar.group.limits import (
    CLIENT_FAILURES_MAX,
    CLIENT_PAUSE_S_MAX,
    CLIENT_STABLE_S,
    NAME_IN_USE_S_MAX,
    REFUSED_PAUSE_S,
)
from postdate.sidecar.group.poller import Poller
from postdate.sidecar.group.rejoining import Rejoining
from postdate.sidecar.shard.inbox import Inbox
from postdate.sidecar.shard.shard_thread import ShardThread
from postdate.sidecar.states import State
from support.brokers.kafka_steps import new_topic
from support.kafka_simulator import SimBroker, SimKafka

NAME = "pod-0"


class _StaticMember:
    """One process that is a static member. The test sets `each_round`, which runs in each round."""

    def __init__(self) -> None:
        self.kafka = SimKafka(SimBroker())
        self.topic = new_topic(self.kafka, partitions=2)
        self.clients: list[GroupConsumer] = []
        self.released = 0
        self.each_round: Callable[[], None] = lambda: None
        self.poller = Poller(None, self._start, lambda _: None)

    def _start(self, part: Partition) -> ShardThread:
        shard = SimpleNamespace(
            state=State.RUNNING, next_request=0, foreign=False, ctx=SimpleNamespace(held=HoldState()), part=part
        )
        thread = SimpleNamespace(inbox=Inbox(), shard=shard, wake_if_needed=lambda: None, is_resting=False)
        thread.release, thread.join = self._released, lambda timeout_s: True
        return cast(ShardThread, thread)

    def fence(self) -> None:
        """Lets another process take the name and die at once."""
        stranger = self.kafka.group_consumer("group", NAME)
        stranger.subscribe([self.topic], cast(Poller, SimpleNamespace(assigned=lambda parts: None)))
        stranger.poll(1, 0.0)

    def _released(self) -> None:
        self.released += 1

    def new_client(self) -> GroupConsumer:
        client = self.kafka.group_consumer("group", NAME)
        self.clients.append(client)
        poll = client.poll

        def polled(records_max: int, timeout_s: float) -> object:
            self.each_round()
            return poll(records_max, timeout_s)

        client.poll = polled  # type: ignore[method-assign, assignment]
        return client

    def run(self) -> bool:
        return self.poller.run([self.topic], self.new_client)

    # ---- replaces the module `time` in the poller -------------------------------------------------------------------

    def monotonic(self) -> float:
        return self.kafka.broker.time.now_ms / 1000

    def sleep(self, seconds: float) -> None:
        self.kafka.broker.time.wait(seconds * 1000)


@pytest.fixture
def env(monkeypatch: pytest.MonkeyPatch) -> _StaticMember:
    env = _StaticMember()
    monkeypatch.setattr(poller_module, "time", env)
    return env


def test_a_member_that_was_fenced_releases_its_shards_and_gets_them_back(env: _StaticMember) -> None:
    def each_round() -> None:
        if len(env.poller.shards) == 2:
            if len(env.clients) == 1:
                env.fence()
            else:
                env.poller.stop()

    env.each_round = each_round
    assert env.run()
    assert len(env.clients) == 2
    assert env.released == 4, "two when it was fenced, two in the end"
    assert env.poller.failure is None


def test_without_a_client_the_process_gives_the_reason_and_its_loop_runs(
    env: _StaticMember, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise FatalClient("it broke")

    env.each_round = fail
    seen: list[tuple[bool, str, float]] = []
    sleep = env.sleep

    def watched(seconds: float) -> None:
        failure = env.poller.failure
        silent_s = env.monotonic() - env.poller.turned_at
        seen.append((env.poller.is_member, failure.why if failure is not None else "", silent_s))
        sleep(seconds)

    monkeypatch.setattr(env, "sleep", watched)
    with pytest.raises(ClientFailed) as failed:
        env.run()
    assert failed.value.exit_code is Exit.CLIENT_FAILED
    assert set(seen) == {(False, "it broke", 0.0)}
    assert len(env.clients) == CLIENT_FAILURES_MAX


def test_two_processes_of_one_name_do_not_fence_each_other_for_ever(env: _StaticMember) -> None:
    """Another process takes the name back whenever this process has joined with it."""

    def fence() -> None:
        if env.poller.shards:
            env.fence()

    env.each_round = fence
    with pytest.raises(ClientFailed, match="give each process of the group its own"):
        env.run()
    assert len(env.clients) == CLIENT_FAILURES_MAX
    assert env.released == 2 * CLIENT_FAILURES_MAX


def test_a_stop_ends_the_pause(env: _StaticMember, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise Fenced("somebody else has the name")

    env.each_round = fail
    monkeypatch.setattr(env, "sleep", lambda _: env.poller.stop())
    assert env.run()
    assert len(env.clients) == 1


def test_a_client_that_cannot_be_made_for_its_settings_is_not_tried_again(env: _StaticMember) -> None:
    def refuse() -> GroupConsumer:
        raise SettingRefused("no such property")

    with pytest.raises(SettingRefused):
        env.poller.run([env.topic], refuse)


def test_pauses_double_to_their_bound_and_a_client_that_served_well_begins_a_new_row() -> None:
    rejoining, now, pauses = Rejoining(), 0.0, list[float]()
    for _ in range(CLIENT_FAILURES_MAX - 1):
        rejoining.joined(now)
        rejoining.failed(Fenced("x"), now)
        pauses.append(rejoining.joins_in_s(now))
    assert pauses == [1, 2, 4, 8, 16]
    assert pauses[-1] <= CLIENT_PAUSE_S_MAX < CLIENT_STABLE_S
    rejoining.joined(now)
    now += CLIENT_STABLE_S
    rejoining.failed(Fenced("x"), now)
    assert rejoining.joins_in_s(now) == 1


def test_a_name_in_use_counts_as_a_failure_only_after_any_session_has_timed_out() -> None:
    rejoining, now = Rejoining(), 0.0
    while now < NAME_IN_USE_S_MAX:
        rejoining.joined(now)
        rejoining.failed(NameInUse("taken"), now)
        assert rejoining.joins_in_s(now) == REFUSED_PAUSE_S
        now += REFUSED_PAUSE_S
    for _ in range(CLIENT_FAILURES_MAX - 1):
        rejoining.failed(NameInUse("taken"), now)
    with pytest.raises(ClientFailed, match="give each process of the group its own"):
        rejoining.failed(NameInUse("taken"), now)


def test_a_process_waits_again_for_a_name_that_was_free_in_between() -> None:
    rejoining = Rejoining()
    rejoining.failed(NameInUse("taken"), 0.0)
    rejoining.joined(NAME_IN_USE_S_MAX)
    now = NAME_IN_USE_S_MAX + CLIENT_STABLE_S
    rejoining.failed(NameInUse("taken"), now)
    assert rejoining.joins_in_s(now) == REFUSED_PAUSE_S
    rejoining.failed(Fenced("taken away"), now)
    rejoining.failed(NameInUse("taken"), now + NAME_IN_USE_S_MAX)
    assert rejoining.joins_in_s(now + NAME_IN_USE_S_MAX) == REFUSED_PAUSE_S, "another fault ends the row"


def test_a_process_waits_for_members_of_the_classic_protocol_until_they_leave(env: _StaticMember) -> None:
    """The process stands by, and tries again every few seconds."""
    seen: set[tuple[bool, bool]] = set()

    def each_round() -> None:
        seen.add((bool(env.poller.stands_by), env.poller.is_member))
        if len(env.clients) <= 10 * CLIENT_FAILURES_MAX:
            raise OtherProtocol("classic members")
        if env.poller.is_member:
            assert not env.poller.stands_by
            env.poller.stop()

    env.each_round = each_round
    assert env.run()
    assert len(env.clients) == 10 * CLIENT_FAILURES_MAX + 1
    assert (True, False) in seen
