"""Goal: an unexpected exception delays a shard, and halts it only after a bounded number of attempts.

Method: the test turns the real shard over the simulated broker, as its thread would; a patch raises the exceptions.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from postdate.sidecar.ingest.ingest import ingest as honest_ingest
from postdate.sidecar.operation.instructions import RESUME, Instruction, instruct
from postdate.sidecar.operation.shard_status import read_status
from postdate.sidecar.shard import shard as shard_module
from postdate.sidecar.shard.internal_failures import InternalFailures
from postdate.sidecar.shard.limits import INTERNAL_ATTEMPTS_MAX, INTERNAL_CALM_MS
from postdate.sidecar.shard.shard import Shard
from postdate.sidecar.states import State
from support.shards.simulated_shard import ShardEnvironment


class _Guarded:
    """A shard, and the handling of exceptions as in its thread."""

    def __init__(self, env: ShardEnvironment, shard: Shard, monkeypatch: pytest.MonkeyPatch) -> None:
        self.failed = 0
        honest = shard.turn

        def turn() -> float:
            try:
                return honest()
            except ValueError as error:
                self.failed += 1
                env.time.wait(wait_ms := shard.fail(error))
                return min(wait_ms, 1.0)

        monkeypatch.setattr(shard, "turn", turn)


def _failing(monkeypatch: pytest.MonkeyPatch, fails: Callable[[], bool]) -> None:
    def ingest(*given: object) -> int:
        if fails():
            raise ValueError("a rule of ours is broken")
        return honest_ingest(*given)  # type: ignore[arg-type]  # passed on unchanged

    monkeypatch.setattr(shard_module, "ingest", ingest)


def test_a_temporary_failure_does_not_halt_the_shard(env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch) -> None:
    shard = env.shard()
    guarded = _Guarded(env, shard, monkeypatch)
    _failing(monkeypatch, lambda: guarded.failed < 3)
    env.schedule(1)
    env.until(shard, lambda: env.ended() == 1)
    assert guarded.failed == 3
    assert len(env.read("orders")) == 1
    shard.close()


def test_a_permanent_failure_halts_the_shard_until_it_is_resumed(
    env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    shard = env.shard()
    guarded = _Guarded(env, shard, monkeypatch)
    failing = [True]
    _failing(monkeypatch, lambda: failing[0])
    env.schedule(1)
    env.until(shard, lambda: "failed 1 times" in shard.why)
    status = read_status(env.directory / "0")
    assert status is not None
    assert status.why == shard.why
    env.until(shard, lambda: shard.state is State.HALTED, 600_000)
    place = r"test_internal_failures\.py:\d+"
    assert re.fullmatch(rf"internal: ValueError in {place}; report it with the log", shard.why)
    assert guarded.failed == INTERNAL_ATTEMPTS_MAX + 1
    instruct(env.directory / "0", Instruction(do=RESUME))
    env.until(shard, lambda: guarded.failed > INTERNAL_ATTEMPTS_MAX + 2, 600_000)
    failing[0] = False
    env.until(shard, lambda: env.ended() == 1, 600_000)
    shard.close()


def test_a_fenced_shard_stays_fenced_when_it_fails(env: ShardEnvironment) -> None:
    shard = env.shard()
    shard.state = State.FENCED
    shard.fail(ValueError("x"))
    assert shard.state is State.FENCED
    shard.close()


def test_a_long_time_without_a_failure_resets_the_count() -> None:
    failures = InternalFailures()
    waits = [failures.retry_ms(0.0) for _ in range(INTERNAL_ATTEMPTS_MAX)]
    assert waits == [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000]
    assert failures.retry_ms(INTERNAL_CALM_MS + 1.0) == 1_000
    assert [failures.retry_ms(INTERNAL_CALM_MS + 2.0) for _ in range(INTERNAL_ATTEMPTS_MAX)][-1] is None
