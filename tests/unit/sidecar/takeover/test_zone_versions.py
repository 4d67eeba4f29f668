"""Goal: an owner publishes nominal times by its own time zone rules, even if an owner with other rules has read the
request.

Method: a shard ingests a schedule or a backfill, and is closed before its transaction. A second shard with the same
disk and other rules takes over. The other rules are those of another zone under the same name.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from postdate.sidecar.dispatch.dispatcher import Dispatcher
from postdate.sidecar.shard.shard import Shard
from postdate.sidecar.takeover import takeover
from postdate.wire.dispatch_log import BACKFILLED, CANCELLED, OWNER, STORED, Backfilled
from postdate.wire.schedules import occurrences
from postdate.wire.schedules.zones import Zone, load_zone
from postdate.wire.values.instants import format_instant
from support.shards.simulated_shard import ShardEnvironment

NIGHTLY = (
    ("postdate-topic", b"orders"),
    ("postdate-id", b"nightly"),
    ("postdate-cron", b"30 2 * * *"),
    ("postdate-zone", b"Europe/Berlin"),
)
_OTHER = "2020a"

Headers = tuple[tuple[str, bytes], ...]


@pytest.fixture
def env(tmp_path: Path) -> Iterator[ShardEnvironment]:
    env = ShardEnvironment(tmp_path)
    env.format_version = 3
    yield env
    occurrences._next_of_cron.cache_clear()


def use_other_rules(patched: pytest.MonkeyPatch) -> None:
    """Gives Berlin the time of Tokyo under another version, until the patch is undone."""

    def load(name: str) -> Zone:
        return load_zone("Asia/Tokyo" if name == "Europe/Berlin" else name)

    occurrences._next_of_cron.cache_clear()
    patched.setattr(occurrences, "load_zone", load)
    patched.setattr(takeover, "TZ_VERSION", _OTHER)


def ingested(env: ShardEnvironment, *requests: Headers, other_rules: bool = True) -> None:
    """Lets a shard read requests, and closes the shard before it commits anything."""
    with pytest.MonkeyPatch.context() as patched:
        if other_rules:
            use_other_rules(patched)
        first = env.shard()
        patched.setattr(Dispatcher, "dispatch", lambda *_: (0, False))
        last = max(env.ask(*headers) for headers in requests)
        env.until(first, lambda: first.next_request == last + 1)
        first.close()
    occurrences._next_of_cron.cache_clear()


def local_time(instant_ms: int) -> str:
    zone = load_zone("Europe/Berlin")
    return format_instant(instant_ms + 1_000 * zone.offset_s(instant_ms // 1_000))[11:16]


def successor(env: ShardEnvironment, ends: int) -> Shard:
    shard = env.shard()
    env.until(shard, lambda: env.ended() >= ends)
    return shard


def owners(env: ShardEnvironment) -> list[object]:
    return [record.tz for record in env.log() if record.kind == OWNER]


def test_a_first_time_that_no_fate_has_published_follows_the_rules_of_its_publisher(env: ShardEnvironment) -> None:
    ingested(env, NIGHTLY)
    successor(env, 1).close()
    (stored,) = [fate for record in env.log() for fate in record.fates if fate.name == STORED]
    assert local_time(stored.first_due_ms) == "02:30"
    assert owners(env)[0] == _OTHER != owners(env)[-1]
    assert [path.name for path in env.directory.glob("0.*")] == ["0.old-1"]


def test_the_time_of_a_schedule_that_is_cancelled_at_once_follows_the_rules_of_its_publisher(
    env: ShardEnvironment,
) -> None:
    ingested(env, NIGHTLY, (("postdate-action", b"cancel"), ("postdate-id", b"nightly")))
    successor(env, 2).close()
    (cancelled,) = [fate for record in env.log() for fate in record.fates if fate.name == CANCELLED]
    assert local_time(cancelled.first_due_ms) == "02:30"


def test_a_published_time_stays_and_the_index_with_it(env: ShardEnvironment) -> None:
    with pytest.MonkeyPatch.context() as patched:
        use_other_rules(patched)
        first = env.shard()
        env.ask(*NIGHTLY)
        env.until(first, lambda: env.ended() == 1)
        first.close()
    occurrences._next_of_cron.cache_clear()
    env.shard().close()
    (stored,) = [fate for record in env.log() for fate in record.fates if fate.name == STORED]
    assert local_time(stored.first_due_ms) != "02:30"
    assert [path.name for path in env.directory.glob("0.*")] == []


def test_the_times_of_a_backfill_follow_the_rules_of_their_publisher(env: ShardEnvironment) -> None:
    first = env.shard()
    env.ask(*NIGHTLY)
    env.until(first, lambda: env.ended() == 1)
    first.close()
    now_ms = int(env.time.now_ms)
    times = ("postdate-start", b"%d" % (now_ms - 3 * 86_400_000)), ("postdate-end", b"%d" % now_ms)
    ingested(env, (("postdate-action", b"backfill"), ("postdate-id", b"nightly"), *times))
    successor(env, 4).close()
    (filled,) = [fate for record in env.log() for fate in record.fates if fate.name == BACKFILLED]
    assert isinstance(filled, Backfilled)
    assert local_time(filled.first_ms) == "02:30"


@pytest.mark.parametrize(
    "sent",
    [
        (("postdate-topic", b"orders"), ("postdate-delay", b"5s")),
        (("postdate-action", b"cancel"), ("postdate-id", b"nightly")),
        (
            ("postdate-action", b"backfill"),
            ("postdate-id", b"nightly"),
            ("postdate-start", b"1"),
            ("postdate-end", b"1000"),
        ),
    ],
    ids=["message", "cancel", "backfill of nothing"],
)
def test_an_index_without_such_times_is_kept(env: ShardEnvironment, sent: Headers) -> None:
    ingested(env, sent)
    successor(env, 1).close()
    assert [path.name for path in env.directory.glob("0.*")] == []


def test_an_index_is_kept_if_its_next_owner_has_the_same_rules(env: ShardEnvironment) -> None:
    ingested(env, NIGHTLY, other_rules=False)
    successor(env, 1).close()
    assert [path.name for path in env.directory.glob("0.*")] == []
