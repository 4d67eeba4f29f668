"""Faults of the disk: a full disk, damaged wheels, and logs that are truncated, corrupt, old or lost."""

from __future__ import annotations

import shutil

from support.deployments.sidecars import Sidecar, wait_until
from support.faults import damage
from support.faults.damage import Damage
from support.faults.fault import fault
from support.faults.rig import FaultRig
from support.faults.small_disk import SmallDisk, small_disk

#: The messages of RocksDB and the sidecar for a full disk.
FULL = r"disk is full|No space left|File too large"


@fault("disk full")
def disk_full(rig: FaultRig) -> str:
    """Fills the disk while the process runs, and then frees it: the process must not exit, and must resume
    deliveries."""
    extra = rig.extras[0]
    with _on_small_disk(rig, extra) as disk:
        extra.start()
        extra.wait_for_shards(1)
        fill_until_reported(extra, disk)
        rig.wait(rig.chance.uniform(1.0, 3.0))
        alive = extra.is_alive()
        disk.free(extra.pid if alive else None)
        rig.fault_ends()
        if not alive:
            rig.wrong.append(f"{extra.name} died of a full disk:\n{extra.log_text()[-2000:]}")
        else:
            wait_until(lambda: extra.shards() > 0, f"{extra.name} delivers again")
            extra.stop()
        return disk.means


@fault("disk full at the start")
def disk_full_at_the_start(rig: FaultRig) -> str:
    """Leaves no space for a wheel: the process must report this, and deliver only after the disk is freed."""
    extra = rig.extras[0]
    with _on_small_disk(rig, extra) as disk:
        left = rig.chance.choice((0, 100_000, 1_000_000, 3_000_000))
        disk.fill(None, left)
        extra.start()
        if disk.means != "tmpfs":
            disk.fill(extra.pid, left)
        rig.wait(rig.chance.uniform(5.0, 8.0))
        alive = extra.is_alive()
        disk.free(extra.pid if alive else None)
        rig.fault_ends()
        if not alive:  # the process may refuse to start, but must report the reason
            if not extra.log_text().strip():
                rig.wrong.append(f"{extra.name} ended on a full disk and said nothing")
            extra.start()
        extra.wait_for_shards(1)
        extra.stop()
        return f"{left} bytes left, {disk.means}"


def fill_until_reported(member: Sidecar, disk: SmallDisk) -> None:
    """Fills the disk until the member reports that it is full. Also fills the space that compaction frees meanwhile."""

    def is_reported() -> bool:
        if member.is_alive():
            disk.fill(member.pid)
        return bool(is_full_reported(member))

    wait_until(is_reported, f"{member.name} says that the disk is full")


def is_full_reported(member: Sidecar) -> bool:
    """True if this process has reported a full disk."""
    text = member.log_text()
    return any(words in text for words in FULL.split("|"))


class _on_small_disk:
    """Puts the data of a member on a small disk within the context, and kills the member at its end."""

    def __init__(self, rig: FaultRig, member: Sidecar) -> None:
        self._member, self._data = member, member.data
        number = rig.chance.getrandbits(32)
        self._disk = small_disk(member.directory / f"small-{number:x}")

    def __enter__(self) -> SmallDisk:
        disk = self._disk.__enter__()
        self._member.data = disk.directory / "data"
        return disk

    def __exit__(self, *error: object) -> None:
        if self._member.is_alive():
            self._member.kill()
        self._member.data = self._data
        self._disk.__exit__(None, None, None)


@fault("wheel damaged")
def wheel_damaged(rig: FaultRig) -> str:
    return _damaged(rig, rig.chance.choice(damage.WHEEL_DAMAGES))


@fault("wheel half old")
def wheel_half_old(rig: FaultRig) -> str:
    member = rig.one()
    old = member.directory / "old-wheels"
    shutil.rmtree(old, ignore_errors=True)
    for shard in damage.shards(member.data_dir):
        copy = old / shard.name
        copy.mkdir(parents=True)
        shutil.copy(damage.wheel_of(shard), copy)
    rig.wait(2.0)
    member.kill()
    for shard in damage.shards(member.data_dir):
        if (old / shard.name).exists():
            damage.mix_wheels(old / shard.name, shard, rig.chance)
    rig.fault_ends()
    member.start()
    return "pages mixed"


@fault("power lost")
def power_lost(rig: FaultRig) -> str:
    return _damaged(rig, damage.cut_log)


@fault("bit rot")
def bit_rot(rig: FaultRig) -> str:
    return _damaged(rig, rig.chance.choice(damage.LOG_DAMAGES))


@fault("disk lost")
def disk_lost(rig: FaultRig) -> str:
    return _damaged(rig, damage.lose_disk)


@fault("old backup")
def old_backup(rig: FaultRig) -> str:
    """Replaces the directory with a copy that is some seconds old."""
    member = rig.one()
    member.stop()
    backup = member.directory / "backup"
    shutil.rmtree(backup, ignore_errors=True)
    shutil.copytree(member.data_dir, backup)
    member.start()
    rig.wait(seconds := rig.chance.uniform(4.0, 9.0))
    member.kill()
    shutil.rmtree(member.data_dir)
    shutil.copytree(backup, member.data_dir)
    rig.fault_ends()
    member.start()
    return f"{seconds:.1f} s old"


def _damaged(rig: FaultRig, how: Damage) -> str:
    """Kills or stops a member, damages each of its shards, and starts it again."""
    member = rig.one()
    if rig.chance.random() < 0.3:
        member.stop()
    else:
        member.kill()
    done = [how(shard, rig.chance) for shard in damage.shards(member.data_dir)]
    rig.fault_ends()
    member.start()
    return ", ".join(sorted(set(done)))[:120] or "nothing there"
