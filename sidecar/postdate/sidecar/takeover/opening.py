"""Opens and releases the timer index of a shard, whatever its directory contains: step 1 of docs/protocol.md,
"Takeover".

An unusable index is moved aside for the operator, and an empty one is opened, since Kafka holds everything that a
rebuild needs. The shard halts if a topic was re-created, since Kafka has then lost pending messages. It also halts if a
topic is missing, or a partition that this process may not add.

If another process holds the directory for long, the shard uses a directory beside it: the newest free one that it used
before, or a new one. Reuse keeps the number of directories small and may save a rebuild: the reused index is merely
older.

Thread rule: the shard's thread.
"""

from __future__ import annotations

import logging
import re
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from postdate.kafka.errors import NotAuthorized, SettingRefused
from postdate.kafka.interface import TopicInfo
from postdate.sidecar.context.shard_context import ShardContext
from postdate.sidecar.errors import Halted, HaltReason
from postdate.sidecar.operation.instructions import INSTRUCTION_NAME
from postdate.sidecar.operation.shard_status import BESIDE, STATUS_NAME
from postdate.sidecar.takeover.limits import (
    ASIDE_DIRECTORIES_MAX,
    BESIDE_DIRECTORIES_MAX,
    LOCK_POLL_MS,
    LOCK_WAIT_MS_MAX,
)
from postdate.wheel.errors import Corrupt, FormatMismatch, IdentityMismatch, Locked, TimerIndexError, release_frames
from postdate.wheel.index import TimerIndex, move_aside
from postdate.wheel.options import IndexOptions
from postdate.wheel.timer_log.identity import Identity

log = logging.getLogger(__name__)

# Reasons for moving an index aside after which the shard keeps its halt and its accepted losses.
_SAME_SHARD = frozenset({"unusable", "old"})

_BESIDE_NAME = re.compile(r"\d+\.beside-[0-9a-f]+")


@dataclass(slots=True)
class Opened:
    """The result of step 1: the shard's timer index, possibly an empty one."""

    index: TimerIndex


def open_index(ctx: ShardContext) -> Opened:
    """Opens the timer index: step 1. Moves an unusable index aside, and opens an empty one.

    Raises Halted if a topic was re-created or is missing, or if it lacks the partition and this process may not add it.
    Raises NotAuthorized if a topic may not be described, Locked if the shard is released while it waits for the
    directory, StorageError, and the other faults of the admin client.
    """
    topics = ctx.admin.describe(ctx.own.names())
    for name in (ctx.own.requests, ctx.own.dispatch_log, ctx.own.store):
        if name not in topics:
            raise Halted(
                HaltReason.TOPIC_RULES,
                f"topic {name} does not exist: run postdate topics create --requests {ctx.own.requests} "
                "--allow-existing, then resume the shard",
            )
        if not topics[name].topic_id:
            raise NotAuthorized(f"no ACL lets this user describe topic {name}: allow it Describe and DescribeConfigs")
    _grow(ctx, topics)
    identity = Identity(
        cluster_id=ctx.cluster_id,
        request_topic_id=topics[ctx.own.requests].topic_id,
        dispatch_log_topic_id=topics[ctx.own.dispatch_log].topic_id,
        partition=ctx.partition,
        store_topic_id=topics[ctx.own.store].topic_id,
    )
    return Opened(_open(ctx, identity))


def _grow(ctx: ShardContext, topics: dict[str, TopicInfo]) -> None:
    """If one of Postdate's own topics lacks this shard's partition, gives the topic as many partitions as the request
    topic, which may have been extended later. Raises Halted if this process may not do that; shards with all their
    partitions continue.
    """
    wanted = len(topics[ctx.own.requests].partitions)
    short = {
        name: wanted
        for name, info in topics.items()
        if name != ctx.own.requests and info.partitions and ctx.partition not in info.partitions
    }
    if not short:
        return
    try:
        ctx.admin.add_partitions(short)
        log.info("shard %s: raised to %d partitions: %s", ctx.name, wanted, ", ".join(sorted(short)))
    except NotAuthorized as error:
        raise Halted(
            HaltReason.TOPIC_RULES,
            f"{', '.join(sorted(short))} have no partition {ctx.partition} and this process may not add it ({error}): "
            f"run postdate topics create --requests {ctx.own.requests} --allow-existing, then resume the shard",
        ) from error
    except SettingRefused as error:
        # Another shard may have added it; otherwise the next step cannot read the partition.
        log.info("shard %s: %s", ctx.name, error)


def _open(ctx: ShardContext, identity: Identity) -> TimerIndex:
    options = IndexOptions(tick_ms=ctx.config.index.tick_ms, ended_window_ms=ctx.topic.ended_window_ms)
    directory, waited_since = ctx.directory, ctx.clock.steady_ms()
    beside = _beside(ctx.directory)
    while True:
        try:
            index = TimerIndex.open(directory, identity, options, ctx.clock.wall_ms())
            _forget_beside(ctx.directory, directory)
            return index
        except Locked:
            if directory != ctx.directory or ctx.clock.steady_ms() - waited_since > LOCK_WAIT_MS_MAX:
                held, directory = directory, beside.pop()
                log.warning("shard %s: another process holds %s; using %s", ctx.name, held, directory)
            elif ctx.stopping():
                raise
            else:
                ctx.clock.sleep(LOCK_POLL_MS)
        except (Corrupt, FormatMismatch) as error:
            kept = keep(directory, "unusable")
            log.warning("shard %s: the timer index cannot be used (%s); kept as %s, rebuilding", ctx.name, error, kept)
        except IdentityMismatch as error:
            if any("topic_id" in name for name in error.fields):
                raise Halted(
                    HaltReason.TOPIC_RECREATED,
                    f"{error}; a topic of this shard was deleted and created again: its pending messages are "
                    "gone from Kafka. If that was intended, create all topics of this request topic again, and then "
                    "rebuild the shard",
                ) from error
            kept = keep(directory, "foreign")
            log.warning("shard %s: %s; kept as %s, rebuilding", ctx.name, error, kept)


def keep(directory: Path, why: str) -> Path:
    """Moves a directory aside for the operator. Of the directories kept for the same reason, only the newest few
    remain."""
    kept = move_aside(directory, why)
    if why in _SAME_SHARD:  # its halt and the accepted losses still apply without this index
        _carry_over(kept, directory)
    for old in _by_age(list(directory.parent.glob(f"{directory.name}.{why}-*")))[:-ASIDE_DIRECTORIES_MAX]:
        shutil.rmtree(old, ignore_errors=True)
    return kept


def discard(directory: Path) -> None:
    """Removes an index whose rebuild was interrupted, since the topics have everything that it contains. Keeps the
    status and the instruction of the shard."""
    for path in directory.iterdir():
        if path.name not in (STATUS_NAME, INSTRUCTION_NAME):
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def _carry_over(kept: Path, directory: Path) -> None:
    for name in (STATUS_NAME, INSTRUCTION_NAME):
        if (kept / name).exists():
            directory.mkdir(mode=0o700, exist_ok=True)
            shutil.copy2(kept / name, directory / name)


def _beside(directory: Path) -> list[Path]:
    """Returns alternatives to a directory that another process holds: a new one, and those used before, the newest
    last."""
    used = [path for path in directory.parent.glob(f"{directory.name}{BESIDE}*") if _BESIDE_NAME.fullmatch(path.name)]
    return [directory.with_name(f"{directory.name}{BESIDE}{time.time_ns():x}"), *_by_age(used)]


def _forget_beside(directory: Path, opened: Path) -> None:
    """Removes old states of the opened index: of the other directories beside `directory`, all but the newest.

    If a process still uses such a directory, it should have released the shard. If it continues, it rebuilds its index.
    """
    used = directory.parent.glob(f"{directory.name}{BESIDE}*")
    others = [path for path in used if _BESIDE_NAME.fullmatch(path.name) and path != opened]
    for old in _by_age(others)[:-BESIDE_DIRECTORIES_MAX]:
        shutil.rmtree(old, ignore_errors=True)
        log.info("removed %s: a newer state of the shard is in use", old)


def _by_age(paths: list[Path]) -> list[Path]:
    """Returns the paths by age, the oldest first, without paths that have disappeared."""
    aged: list[tuple[float, Path]] = []
    for path in paths:
        try:
            aged.append((path.stat().st_mtime, path))
        except FileNotFoundError:
            continue
    return [path for _, path in sorted(aged)]


def close_index(shard: str, index: TimerIndex, clean: bool) -> None:
    """Closes the index. A failure is only logged: the index is released anyway, and checked at the next opening."""
    try:
        index.close(clean)
    except TimerIndexError as fault:
        release_frames(fault)
        log.error("shard %s: the timer index was not closed cleanly: %s", shard, fault)


def put_aside(shard: str, directory: Path, why: str) -> None:
    """Keeps the directory of a closed index for the operator; the next takeover rebuilds the index from the topics."""
    if directory.exists():
        log.warning("shard %s: kept as %s, rebuilding", shard, keep(directory, why))
