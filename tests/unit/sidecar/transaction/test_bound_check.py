"""Goal: a stale answer of a deposed leader repeats no message, loses none and halts no shard.

Method: the real shard runs over the simulated broker. For some time its admin client gets old answers, as from a leader
that was frozen and then continued. Two disks serve the shard in turn.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager

import pytest

from postdate.kafka.errors import UnknownOutcome
from postdate.kafka.interface import Admin, Isolation, Partition
from postdate.sidecar.config.settings import RequestTopicConfig
from postdate.sidecar.shard.shard import Shard
from postdate.sidecar.states import State
from postdate.sidecar.transaction.bound_check import BoundCheck, UnverifiedBound
from postdate.wire.dispatch_log import OWNER
from postdate.wire.stored import BOUND_KEY, stored_offset
from support.kafka_simulator.admin import SimAdmin
from support.kafka_simulator.producer import SimTransactionalProducer
from support.shards.simulated_shard import OWN, R, ShardEnvironment, takeovers

_LOG = Partition(OWN.dispatch_log, 0)
_STORE = Partition(OWN.store, 0)
_REQUESTS = Partition(R, 0)
_LONG = RequestTopicConfig(R, store_after_ms=1_000)


@contextmanager
def _stale(monkeypatch: pytest.MonkeyPatch, ends: dict[Partition, int]) -> Iterator[None]:
    """Makes every admin client get at most these end offsets, as from a deposed leader. Readers and producers do
    not."""
    honest = SimAdmin.end_offsets

    def end_offsets(
        self: SimAdmin, parts: Iterable[Partition], isolation: Isolation, timeout_s: float | None = None
    ) -> dict[Partition, int]:
        offsets = honest(self, parts, isolation)
        return {part: min(offset, ends.get(part, offset)) for part, offset in offsets.items()}

    with monkeypatch.context() as patched:
        patched.setattr(SimAdmin, "end_offsets", end_offsets)
        yield


def _end(env: ShardEnvironment, part: Partition) -> int:
    return env.admin.end_offsets([part], Isolation.READ_UNCOMMITTED)[part]


def _for_ms(env: ShardEnvironment, shard: Shard, ms: float, each: Callable[[], None] = lambda: None) -> None:
    until_ms = env.time.now_ms + ms

    def is_over() -> bool:
        each()
        return env.time.now_ms > until_ms

    env.until(shard, is_over, ms + 60_000)


def _read_here_and_delivered_elsewhere(env: ShardEnvironment, count: int) -> int:
    """Fills disk 0 with entries that disk 1 has delivered since; returns the end of the log that disk 0 knew."""
    shard = env.shard()
    for _ in range(count):
        env.schedule(env.time.now_ms + 5_000)
    env.until(shard, lambda: shard.next_request == count)
    shard.close()
    known = _end(env, _LOG)
    other = env.new_shard(place="1")
    env.until(other, lambda: env.ended() == count)
    other.close()
    return known


def test_a_bound_from_a_deposed_leader_repeats_nothing(env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch) -> None:
    known = _read_here_and_delivered_elsewhere(env, 5)
    shard = env.new_shard()
    with _stale(monkeypatch, {_LOG: known}):
        _for_ms(env, shard, 15_000)
        assert shard.state not in (State.RUNNING, State.HALTED)
    env.until(shard, lambda: shard.state is State.RUNNING)
    _for_ms(env, shard, 10_000)
    assert len(env.read("orders")) == 5
    assert [record.seq for record in env.log()] == list(range(1, len(env.log()) + 1))
    shard.close()


@contextmanager
def _aborts_are_refused(env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Admin]]:
    """Makes the coordinator refuse aborts although it carries them out. Yields the admin clients that are made."""
    honest_abort, honest_admin, made = SimTransactionalProducer.abort, env.kafka.admin, list[Admin]()

    def abort(self: SimTransactionalProducer) -> None:
        honest_abort(self)
        raise UnknownOutcome("refused")

    def admin() -> Admin:
        made.append(honest_admin())
        return made[-1]

    with monkeypatch.context() as patched:
        patched.setattr(SimTransactionalProducer, "abort", abort)
        patched.setattr(env.kafka, "admin", admin)
        yield made


def test_a_refuted_bound_is_requested_by_a_new_client_if_the_abort_is_refused(
    env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = _read_here_and_delivered_elsewhere(env, 1)
    shard = env.new_shard()
    with _stale(monkeypatch, {_LOG: known}), _aborts_are_refused(env, monkeypatch) as made:
        env.until(shard, lambda: len(made) > 0, 5_000)
    shard.close()


@pytest.mark.parametrize("aborts_fail", [False, True])
def test_without_a_new_owner_record_the_first_transaction_verifies_the_bound(
    env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch, aborts_fail: bool
) -> None:
    """After an unknown outcome the log may end with a transaction of this very process, which the bound misses."""
    shard = env.shard()
    env.schedule(1)
    ownership = shard._ownership
    assert ownership is not None
    known = _end(env, _LOG)
    honest = ownership.producer.commit

    def commit() -> None:
        honest()
        raise UnknownOutcome("no answer")

    monkeypatch.setattr(ownership.producer, "commit", commit)
    with _stale(monkeypatch, {_LOG: known}), ExitStack() as stack:
        if aborts_fail:
            made = stack.enter_context(_aborts_are_refused(env, monkeypatch))
            env.until(shard, lambda: len(made) > 0, 5_000)
        env.until(shard, lambda: env.ended() == 1)
        _for_ms(env, shard, 15_000)
        assert len(env.read("orders")) == 1
    env.schedule(1)
    env.until(shard, lambda: len(env.read("orders")) == 2)
    assert [record.seq for record in env.log()] == [1, 2, 3, 4]
    shard.close()


def test_an_aborted_record_in_the_gap_is_no_reason_to_take_over_again(
    env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    shard = env.shard()
    known = _end(env, _LOG)
    shard.close()
    stranger = env.kafka.producer("somebody")
    stranger.init(10)
    stranger.begin()
    stranger.produce(OWN.dispatch_log, b"x", None, [], 0)
    stranger.flush(10)
    stranger.abort()
    assert _end(env, _LOG) == known + 2
    shard = env.new_shard()
    with _stale(monkeypatch, {_LOG: known}):
        env.until(shard, lambda: shard.state is State.RUNNING)
    assert takeovers(shard) == 1
    assert [record.kind for record in env.log()] == [OWNER, OWNER]
    shard.close()


def test_a_takeover_waits_for_a_gap_that_a_foreign_transaction_hides(
    env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    shard = env.shard()
    known = _end(env, _LOG)
    shard.close()
    stranger = env.kafka.producer("somebody")
    stranger.init(10)
    stranger.begin()
    stranger.produce(OWN.dispatch_log, b"x", None, [], 0)
    stranger.flush(10)
    shard = env.new_shard()
    with _stale(monkeypatch, {_LOG: known}):
        _for_ms(env, shard, 8_000)
        assert shard.state is not State.RUNNING
    stranger.abort()
    env.until(shard, lambda: shard.state is State.RUNNING)
    shard.close()


@pytest.mark.parametrize(
    ("part", "reason"), [(_REQUESTS, "requests-truncated"), (_LOG, "dispatch-log-truncated")], ids=["requests", "log"]
)
def test_an_end_below_r_halts_only_if_it_is_confirmed(
    env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch, part: Partition, reason: str
) -> None:
    shard = env.shard()
    env.schedule(1)
    env.schedule(env.time.now_ms + 600_000)
    env.until(shard, lambda: env.ended() == 1 and shard.next_request == 2)
    shard.close()
    written = len(env.log())
    shard = env.new_shard()
    with _stale(monkeypatch, {part: 1}):
        _for_ms(env, shard, 15_000)
        assert shard.state is not State.HALTED
        assert shard.why.startswith(reason)
    env.until(shard, lambda: shard.state is State.RUNNING)
    assert [record.kind for record in env.log()[written:]] == [OWNER]  # and no mark, since there is no gap
    shard.close()
    shard = env.new_shard()
    with _stale(monkeypatch, {part: 1}):
        if part is _REQUESTS:
            env.until(shard, lambda: shard.state is State.HALTED)
        else:  # the mark is a record too: it lies after the replayed end, and refutes the answer
            _for_ms(env, shard, 90_000)
    assert (shard.state is State.HALTED) == (part is _REQUESTS)
    shard.close()


def test_a_halt_is_confirmed_by_a_new_client(env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch) -> None:
    """A deposed leader keeps answering the process's client, but not a new client."""
    shard = env.shard()
    env.schedule(env.time.now_ms + 600_000)
    env.until(shard, lambda: shard.next_request == 1)
    shard.close()
    honest = SimAdmin.end_offsets

    def end_offsets(
        self: SimAdmin, parts: Iterable[Partition], isolation: Isolation, timeout_s: float | None = None
    ) -> dict[Partition, int]:
        offsets = honest(self, parts, isolation)
        return {part: 0 if self is env.admin and part == _REQUESTS else offset for part, offset in offsets.items()}

    monkeypatch.setattr(SimAdmin, "end_offsets", end_offsets)
    shard = env.new_shard()
    env.until(shard, lambda: takeovers(shard) == 1, 5_000)
    shard.close()


def test_a_rebuild_reads_the_store_up_to_the_record_that_it_writes(
    env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A missed tombstone would repeat a message, and a missed record would lose one."""
    shard = env.shard(_LONG)
    for _ in range(2):
        env.schedule(env.time.now_ms + 30_000)
    env.until(shard, lambda: env.ended() == 2)  # stored
    known = _end(env, _STORE)
    env.schedule(env.time.now_ms + 60_000)
    env.until(shard, lambda: env.ended() == 3)
    env.until(shard, lambda: len(env.read("orders")) == 2)
    env.until(shard, lambda: env.log()[-1].low_water == 3, 200_000)
    shard.close()
    delivered = len(env.read("orders"))
    shutil.rmtree(env.directory / "0")
    env.admin.delete_records({_REQUESTS: 3})
    with _stale(monkeypatch, {_STORE: known}):
        shard = env.shard(_LONG)
    env.until(shard, lambda: len(env.read("orders")) == 3, 120_000)
    _for_ms(env, shard, 60_000)
    assert delivered >= 2
    assert len(env.read("orders")) == 3
    assert [record.key for record in env.read(OWN.store)].count(BOUND_KEY) == 1
    shard.close()


def test_the_bound_of_the_store_names_no_request() -> None:
    assert stored_offset(BOUND_KEY) == 2**63 - 1


def test_a_record_below_the_replayed_end_is_refused(env: ShardEnvironment) -> None:
    check = BoundCheck(env.kafka, _LOG, 7, env.kafka.clock)
    check.verify(7)
    with pytest.raises(UnverifiedBound, match="has lost its end"):
        check.verify(6)
