"""Goal: the history of a schedule contains its latest occurrences, however many extra deliveries a backfill has made.

Method: one shard of a simulated cluster (`support.shards.simulated_shard`). Its dispatch log is read as a query reads
it.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from postdate.kafka.interface import Partition
from postdate.sidecar.http.queries import request_history
from postdate.sidecar.shard.shard import Shard
from postdate.wheel.entry import Entry, Next, decode_entry
from postdate.wire.requests.parser import parse_request
from support.shards.simulated_shard import R, ShardEnvironment


@pytest.fixture
def env(tmp_path: Path) -> ShardEnvironment:
    environment = ShardEnvironment(tmp_path)
    environment.format_version = 3
    return environment


def entry_of(shard: Shard, schedule: int) -> Entry:
    """Returns the entry of a pending schedule."""
    assert shard._index is not None
    key = shard._index.timer_log.find(schedule)
    assert key is not None
    raw = shard._index.timer_log.entry(key)
    assert raw is not None
    return decode_entry(raw)


def recent(env: ShardEnvironment, entry: Entry, schedule: int) -> tuple[list[dict[str, Any]], bool]:
    """Returns the latest events of the schedule, and whether they are complete."""
    process: Any = SimpleNamespace(kafka=env.kafka, admin=env.admin)
    history = request_history._recent(process, Partition(R, 0), schedule, entry)
    return history.events, history.complete


def backfill(env: ShardEnvironment, count: int) -> int:
    end_ms = env.broker.now_ms() // 1_000 * 1_000 - 1_000
    times = [("postdate-start", b"%d" % (end_ms - (count - 1) * 1_000)), ("postdate-end", b"%d" % end_ms)]
    return env.ask(("postdate-id", b"c"), ("postdate-action", b"backfill"), *times)


def test_extra_deliveries_of_a_control_are_one_event(env: ShardEnvironment) -> None:
    shard = env.shard()
    schedule = env.ask(("postdate-id", b"c"), ("postdate-every", b"1s"), ("postdate-topic", b"orders"))
    env.until(shard, lambda: len(env.read("orders")) == 3)
    control = backfill(env, 1_500)
    env.until(shard, lambda: len(env.read("orders")) >= 1_505)
    trigger = env.ask(("postdate-id", b"c"), ("postdate-action", b"trigger"))
    env.until(shard, lambda: len(env.read("orders")) >= 1_508)
    events, complete = recent(env, entry_of(shard, schedule), schedule)
    extras = [event for event in events if event["fate"] == "extra"]
    assert [(event["by"], event["number"], event["deliveries"]) for event in extras] == [
        (f"{R}/0/{control}", 1_500, 1_500),
        (f"{R}/0/{trigger}", 1, 1),
    ]
    last = [fate for record in env.log() for fate in record.fates if fate.name == "extra"][1_499]
    assert (extras[0]["due_ms"], complete) == (last.nominal_ms, True)
    occurred = [event["occurrence"] for event in events if event["fate"] == "occurred"]
    assert occurred == list(range(1, len(env.read("orders")) - 1_501 + 1))


def test_the_lateness_in_a_window_counts_from_the_chosen_time(env: ShardEnvironment) -> None:
    shard = env.shard()
    headers = (
        ("postdate-id", b"c"),
        ("postdate-every", b"5s"),
        ("postdate-topic", b"orders"),
        ("postdate-window", b"4s"),
    )
    schedule = env.ask(*headers)
    env.until(shard, lambda: len(env.read("orders")) == 3)
    events, _ = recent(env, entry_of(shard, schedule), schedule)
    chosen = [(event["due_ms"], event["chosen_ms"], event["at_ms"]) for event in events if "occurrence" in event]
    assert len(chosen) == 3
    assert all(due_ms < chosen_ms <= due_ms + 4_000 for due_ms, chosen_ms, _ in chosen)
    assert all(chosen_ms <= at_ms < chosen_ms + 100 for _, chosen_ms, at_ms in chosen)


def test_a_schedule_with_only_extra_deliveries_left_has_a_history(env: ShardEnvironment) -> None:
    shard = env.shard()
    schedule = env.ask(("postdate-id", b"c"), ("postdate-every", b"1s"), ("postdate-topic", b"orders"))
    env.until(shard, lambda: len(env.read("orders")) == 3)
    pending = (9, 1, env.broker.now_ms(), env.broker.now_ms(), env.broker.now_ms())
    left = msgspec.structs.replace(entry_of(shard, schedule), next=Next(4, 0, (), (pending,)))
    events, complete = recent(env, left, schedule)
    assert [event["fate"] for event in events] == ["stored", "occurred", "occurred", "occurred"]
    assert complete


def test_extra_deliveries_of_an_ended_schedule_are_one_event(env: ShardEnvironment) -> None:
    """The search for an ended request first reads the log from the request's first due time on, and then the earlier
    part. One of the two transactions of the backfill is in the earlier part."""
    shard = env.shard()
    first_ms, every_ms, count = env.broker.now_ms() + 10_000, 20_000, 1_500
    every = b"%dms/%dms" % (every_ms, first_ms % every_ms)
    schedule_id = ("postdate-id", b"c")
    schedule = env.ask(schedule_id, ("postdate-every", every), ("postdate-count", b"1"), ("postdate-topic", b"orders"))
    times = ("postdate-start", b"%d" % (first_ms - count * every_ms)), ("postdate-end", b"%d" % (first_ms - every_ms))
    control = env.ask(schedule_id, ("postdate-action", b"backfill"), *times)
    env.until(shard, lambda: len(env.read("orders")) > 0)
    assert len(env.read("orders")) < count
    env.time.wait(9_500)
    env.until(shard, lambda: env.log()[-1].fates[-1:] != [] and env.log()[-1].fates[-1].name == "completed")
    process: Any = SimpleNamespace(kafka=env.kafka, admin=env.admin)
    record = env.read(R)[schedule]
    request = parse_request(shard.ctx.rules, 0, record.timestamp_ms, record.key, record.headers, False)
    history = request_history._search(process, Partition(R, 0), schedule, record, request)
    extras = [
        (event["by"], event["number"], event["deliveries"]) for event in history.events if event["fate"] == "extra"
    ]
    assert (extras, history.complete) == ([(f"{R}/0/{control}", count, count)], True)
    assert [event["fate"] for event in history.events if event["fate"] in ("occurred", "completed")] == [
        "occurred",
        "completed",
    ]
