"""Goal: a return waits as its policy requires, and its redelivery has the documented headers. The policy of an accepted
return never changes, whatever owner and disk come next.

Method: real shards with different settings and disks take turns over the simulated broker. The test plays a consumer:
it copies the headers of a delivered record into a return.
"""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import pytest

from postdate.sidecar.config.settings import RequestTopicConfig
from postdate.sidecar.dispatch.dispatcher import Dispatcher
from postdate.sidecar.http.queries.pending import as_json
from postdate.sidecar.shard.shard import Shard
from postdate.sidecar.states import State
from postdate.sidecar.takeover import takeover
from postdate.wheel.entry import decode_entry
from postdate.wire.headers import Headers
from support.shards.simulated_shard import OWN, R, ShardEnvironment

MINUTE_MS = 60_000


@pytest.fixture
def env(tmp_path: Path) -> ShardEnvironment:
    made = ShardEnvironment(tmp_path)
    made.format_version = 2
    return made


def give_back(env: ShardEnvironment, retry: bytes, *more: tuple[str, bytes | None]) -> int:
    """Produces a return of the last delivered record; returns its offset."""
    delivered = env.read("orders")
    copied: Headers = delivered[-1].headers or [] if delivered else []
    headers = [*copied, *more, ("postdate-topic", b"orders"), ("postdate-retry", retry)]
    return env.ask(*headers)  # type: ignore[arg-type]  # the environment passes null values on


def due_after_ms(env: ShardEnvironment, offset: int) -> int:
    """Returns the delay in ms from the timestamp of the return at this offset to its due time."""
    delivered = [dict(record.headers or []) for record in env.read("orders")]
    (headers,) = [each for each in delivered if each["postdate-origin"] == b"requests/0/%d" % offset]
    request = next(each for each in env.read(R) if each.offset == offset)
    return int(headers["postdate-due"] or b"") - request.timestamp_ms


def named(*texts: str) -> RequestTopicConfig:
    return RequestTopicConfig(R, retry_policies=texts)


def test_returns_wait_longer_and_end_as_a_dead_letter_with_everything(env: ShardEnvironment) -> None:
    shard = env.shard()
    first_due_ms = int(env.time.now_ms) + 5
    env.schedule(first_due_ms, ("trace", b"7"))
    env.until(shard, lambda: len(env.read("orders")) == 1)
    for attempt, wait_ms in enumerate((1_000, 3_000, 5_000), 1):
        offset = give_back(env, b"base=1s,factor=3,max=5s,attempts=3", ("postdate-error", b"boom %d" % attempt))
        env.until(shard, lambda: len(env.read("orders")) == attempt + 1)  # noqa: B023  # used at once
        assert due_after_ms(env, offset) == wait_ms
        headers = env.read("orders")[-1].headers
        assert headers is not None
        assert headers[0] == ("trace", b"7")
        assert headers[1] == ("postdate-origin", b"requests/0/%d" % offset)
        assert headers[2][0] == "postdate-due"
        assert headers[3:] == [
            *(("postdate-attempt", b"%d" % attempt), ("postdate-first-origin", b"requests/0/0")),
            *(("postdate-first-due", b"%d" % first_due_ms), ("postdate-error", b"boom %d" % attempt)),
        ]
    offset = give_back(env, b"base=1s,factor=3,max=5s,attempts=3")
    env.until(shard, lambda: len(env.dead_letters()) == 1)
    (dead_letter,) = env.read(OWN.dead_letters)
    sent = next(each for each in env.read(R) if each.offset == offset)
    assert (dead_letter.headers or [])[:-3] == sent.headers
    assert env.dead_letters() == [(b"attempts-exhausted", b"v")]
    shard.close()


def test_a_dead_letter_of_an_accepted_return_has_its_headers_as_sent(env: ShardEnvironment) -> None:
    shard = env.shard()
    headers: list[tuple[str, bytes]] = [
        ("a", b"1"),
        ("postdate-error", b"x"),
        ("postdate-topic", b"missing"),
        ("b", b"2"),
    ]
    env.ask(*headers, ("postdate-retry", b"base=1ms"))
    env.until(shard, lambda: len(env.dead_letters()) == 1)
    assert env.dead_letters()[0][0] == b"unknown-target"
    assert (env.read(OWN.dead_letters)[0].headers or [])[:-3] == [*headers, ("postdate-retry", b"base=1ms")]
    shard.close()


def test_a_stored_return_keeps_its_headers_without_its_disk(env: ShardEnvironment) -> None:
    topic = RequestTopicConfig(R, store_after_ms=MINUTE_MS)
    shard = env.shard(topic)
    offset = give_back(env, b"base=30m", ("postdate-attempt", b"0"), ("a", b"1"))
    env.until(shard, lambda: env.ended() == 1)
    assert env.fates() == [[(offset, "stored")]]
    shard.close()
    shutil.rmtree(env.directory / "0")
    shard = env.shard(topic)
    env.until(shard, lambda: len(env.read("orders")) == 1, 40 * MINUTE_MS)
    names = [name for name, _ in env.read("orders")[0].headers or []]
    added = ["origin", "due", "attempt", "first-origin", "first-due"]
    assert names == ["a", *(f"postdate-{name}" for name in added)]
    shard.close()


def test_a_pending_return_shows_its_attempt(env: ShardEnvironment) -> None:
    shard = env.shard()
    attempt = give_back(env, b"base=5s", ("postdate-attempt", b"6"))
    plain = env.schedule(env.time.now_ms + MINUTE_MS, ("a", b"1"))
    env.until(shard, lambda: shard.next_request == 2)
    index = shard._index
    assert index is not None
    shown = []
    for offset in (attempt, plain):
        key = index.timer_log.find(offset)
        assert key is not None
        entry = decode_entry(index.timer_log.entry(key) or b"")
        shown.append(as_json(shard.ctx.requests, key, entry, env.broker.now_ms(), payload=False)["attempt"])
    assert shown == [7, None]
    shard.close()


def test_an_id_of_a_return_is_delivered_and_not_registered(env: ShardEnvironment) -> None:
    shard = env.shard()
    give_back(env, b"base=5s", ("postdate-id", b"order-9"))
    env.ask(("postdate-action", b"cancel"), ("postdate-id", b"order-9"))
    env.until(shard, lambda: len(env.read("orders")) == 1)
    headers = env.read("orders")[0].headers or []
    assert [name for name, _ in headers][:3] == ["postdate-origin", "postdate-due", "postdate-id"]
    assert b'"not-found"' in (env.read(OWN.verdicts)[0].value or b"")
    shard.close()


def test_with_format_version_1_a_return_is_refused_and_the_log_stays_at_version_1(env: ShardEnvironment) -> None:
    env.format_version = 1
    shard = env.shard()
    give_back(env, b"base=1s")
    env.until(shard, lambda: len(env.dead_letters()) == 1)
    assert env.dead_letters()[0][0] == b"unknown-header"
    assert {record.v for record in env.log()} == {1}
    shard.close()


def test_an_accepted_return_keeps_its_policy_when_the_settings_change(
    env: ShardEnvironment, caplog: pytest.LogCaptureFixture
) -> None:
    first = env.shard(named("slow: base=10s", "gone: base=20s"))
    slow, gone = give_back(env, b"slow"), give_back(env, b"gone")
    env.until(first, lambda: first.next_request == 2)
    first.close()
    second = env.shard(named("slow: base=1s"))
    again, refused = give_back(env, b"slow"), give_back(env, b"gone")
    env.until(second, lambda: len(env.read("orders")) == 3)
    assert [due_after_ms(env, offset) for offset in (slow, gone, again)] == [10_000, 20_000, 1_000]
    assert env.dead_letters() == [(b"bad-retry", b"v")]
    assert refused == 3
    env.schedule(0)
    env.until(second, lambda: len(env.read("orders")) == 4)
    second.close()
    owners = [record.policies for record in env.log() if record.kind == "owner"]
    full = ", factor=2, max=1h, attempts=12, jitter=0%"
    before = [(0, "gone", f"base=20s{full}"), (0, "slow", f"base=10s{full}")]
    after = [(2, "gone", ""), (2, "slow", f"base=1s{full}")]
    assert owners == [before, before + after]
    assert env.log()[-1].policies == after, "no request needs the others"
    env.schedule(env.time.now_ms + MINUTE_MS)
    shutil.rmtree(env.directory / "0")
    third = env.shard(named("slow: base=1s"))
    third.close()
    assert env.log()[-1].policies == after, "older records do not bring them back"
    assert "rebuil" not in caplog.text.replace("rebuilding from", ""), "nor do they contradict the index"


def test_the_last_record_alone_shows_the_policies(env: ShardEnvironment) -> None:
    env.shard(named("slow: base=10s")).close()
    shutil.rmtree(env.directory / "0")
    env.format_version = 1
    env.shard().close()
    assert len(env.log()) == 2
    assert env.log()[1].policies == env.log()[0].policies


def test_an_accepted_return_keeps_its_policy_without_its_disk(env: ShardEnvironment) -> None:
    first = env.shard(named("slow: base=10s"))
    offset = give_back(env, b"slow")
    env.until(first, lambda: first.next_request == 1)
    first.close()
    env.format_version = 1  # this process refuses returns, but keeps the policies of other processes
    second = env.shard()
    second.close()
    assert env.log()[-1].policies == env.log()[0].policies
    env.format_version = 2
    shutil.rmtree(env.directory / "0")
    third = env.shard(named("slow: base=1s"))
    env.until(third, lambda: len(env.read("orders")) == 1)
    assert due_after_ms(env, offset) == 10_000
    third.close()


def test_a_changed_policy_does_not_apply_to_requests_of_an_earlier_owner(env: ShardEnvironment) -> None:
    """The second owner has an old disk, so its R lies below the return that the first owner has accepted."""
    old = env.shard(named("slow: base=10s"), instance="old")
    old.close()
    shutil.copytree(env.directory / "0", env.directory / "copy")
    first = env.shard(named("slow: base=10s"))
    offset = give_back(env, b"slow")
    env.schedule(0, value=b"now")
    env.until(first, lambda: len(env.read("orders")) == 1)
    first.close()
    second = env.new_shard(named("slow: base=1s"), place="copy")
    env.until(second, lambda: len(env.read("orders")) == 2)
    assert due_after_ms(env, offset) == 10_000
    assert [row[:2] for row in env.log()[-1].policies or []] == [(0, "slow"), (2, "slow")]
    second.close()


def without_dispatch(env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch, shard: Shard, retry: bytes) -> int:
    """Lets the shard ingest a return and closes it; returns the offset. The dispatch log does not show that the return
    was ingested."""
    with monkeypatch.context() as patched:
        patched.setattr(Dispatcher, "dispatch", lambda *_: (0, False))
        patched.setattr(Dispatcher, "commit_beat", lambda *_: False)
        offset = give_back(env, retry)
        env.until(shard, lambda: shard.next_request == offset + 1)
        shard.close()
    return offset


@pytest.mark.parametrize("change", [("slow: base=1m",), ()], ids=["another", "removed"])
def test_a_changed_policy_does_not_apply_to_an_accepted_return_that_the_log_does_not_show(
    env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch, change: tuple[str, ...]
) -> None:
    """The second owner has no disk. It reads again a return that the first owner has accepted."""
    offset = without_dispatch(env, monkeypatch, env.shard(named("slow: base=10s")), b"slow")
    second = env.new_shard(named(*change), place="other")
    env.until(second, lambda: second.next_request == 1)
    later = give_back(env, b"slow")
    env.until(second, lambda: len(env.read("orders")) == 1)
    assert due_after_ms(env, offset) == 10_000
    assert [row[:2] for row in env.log()[-1].policies or []] == [(0, "slow"), (1, "slow")]
    if change:
        env.until(second, lambda: len(env.read("orders")) == 2, 2 * MINUTE_MS)
        assert due_after_ms(env, later) == MINUTE_MS
    else:
        assert [reason for reason, _ in env.dead_letters()] == [b"bad-retry"]
    second.close()


def test_a_policy_that_returns_is_valid_again(env: ShardEnvironment) -> None:
    """The row that restores the policy never lies below the row that removed it."""
    env.shard(named("slow: base=10s")).close()
    give_back(env, b"slow")
    second = env.new_shard(named(), place="second")
    env.until(second, lambda: second.state is State.RUNNING)
    second.close()
    third = env.new_shard(named("slow: base=20s"), place="third")
    later = give_back(env, b"slow")
    env.until(third, lambda: len(env.read("orders")) == 2)
    assert due_after_ms(env, later) == 20_000
    third.close()


def test_an_index_that_refused_a_return_without_its_policy_is_rebuilt(
    env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log does not show that the first owner has refused the return, so the second owner accepts it."""
    offset = without_dispatch(env, monkeypatch, env.shard(), b"slow")
    second = env.new_shard(named("slow: base=1m"), place="other")
    env.until(second, lambda: second.next_request == 1)
    second.close()
    third = env.shard(named("slow: base=1m"))
    assert [path.name for path in env.directory.glob("0.*")] == ["0.old-1"]
    env.until(third, lambda: len(env.read("orders")) == 1, 2 * MINUTE_MS)
    assert due_after_ms(env, offset) == MINUTE_MS
    third.close()


def test_policies_that_change_too_often_wait(
    env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(takeover, "POLICY_ROWS_MAX", 2)
    for number in range(1, 4):
        shard = env.shard(named(f"slow: base={number}h, max=5h"))
        give_back(env, b"slow")
        env.until(shard, lambda: shard.next_request == number)  # noqa: B023  # used at once
        shard.close()
    assert "retry_policies changed too often" in caplog.text
    assert [row[0] for row in env.log()[-1].policies or []] == [0, 1]


def test_members_of_both_format_versions_hand_a_shard_over_while_returns_are_pending(env: ShardEnvironment) -> None:
    """This is the last step of an upgrade. A member of format 1 refuses new returns, but delivers accepted ones."""
    accepted: list[int] = []
    plain = 0
    for turn in range(6):
        env.format_version = 2 - turn % 2
        shard = env.shard(named("slow: base=20s, jitter=10%") if env.format_version == 2 else None)
        offset = give_back(env, b"slow")
        env.schedule(0)
        plain += 1
        if env.format_version == 2:
            accepted.append(offset)
        env.until(shard, lambda: len(env.read("orders")) == plain)  # noqa: B023  # used at once
        shard.close()
    env.format_version = 1
    shard = env.shard()
    env.until(shard, lambda: len(env.read("orders")) == plain + len(accepted))
    shard.close()
    assert all(20_000 <= due_after_ms(env, offset) <= 22_000 for offset in accepted)
    assert Counter(reason for reason, _ in env.dead_letters()) == {b"unknown-header": 3}
    ends = Counter(offset for fates in env.fates() for offset, _ in fates)
    assert len(ends) == 12
    assert max(ends.values()) == 1
    assert {record.v for record in env.log()} == {2}, "every owner repeats the policies"
