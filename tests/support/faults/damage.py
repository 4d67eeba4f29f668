"""Damages the files of a timer index between two runs: makes wheels truncated, empty, corrupt or old, and logs
truncated or corrupt.

Each function takes the directory of a shard and a random source, changes files in place, and returns a short
description of the damage.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

_PAGE_BYTES = 4096

Damage = Callable[[Path, random.Random], str]


def shards(data_dir: Path) -> list[Path]:
    """Returns the shards' directories in a data directory, except those without a wheel and those that were moved
    aside."""
    return sorted({path.parent for path in data_dir.rglob("wheel*") if path.is_file() and path.parent.name.isdigit()})


def wheel_of(shard: Path) -> Path:
    (found,) = [path for path in shard.iterdir() if path.is_file() and path.name.startswith("wheel")]
    return found


def cut_wheel(shard: Path, chance: random.Random) -> str:
    wheel = wheel_of(shard)
    size = chance.randrange(wheel.stat().st_size)
    with wheel.open("r+b") as file:
        file.truncate(size)
    return f"wheel cut at {size}"


def empty_wheel(shard: Path, chance: random.Random) -> str:
    wheel = wheel_of(shard)
    wheel.write_bytes(bytes(wheel.stat().st_size))
    return "wheel zeroed"


def flip_wheel(shard: Path, chance: random.Random) -> str:
    """Flips some bits of the wheel, sometimes only after the headers."""
    wheel = wheel_of(shard)
    content = bytearray(wheel.read_bytes())
    start = chance.choice((0, 2 * _PAGE_BYTES))
    for at in range(start, len(content), chance.choice((64, 512, 4096))):
        content[min(at + chance.randrange(64), len(content) - 1)] ^= 1 << chance.randrange(8)
    wheel.write_bytes(content)
    return f"wheel flipped from {start} on"


def cut_log(shard: Path, chance: random.Random) -> str:
    """Truncates the newest write-ahead log at a random offset, as a power failure does."""
    logs = sorted((path for path in shard.rglob("*.log") if path.stat().st_size), key=lambda path: path.name)
    if not logs:
        return "no write-ahead log"
    size = chance.randrange(logs[-1].stat().st_size)
    with logs[-1].open("r+b") as file:
        file.truncate(size)
    return f"{logs[-1].name} cut at {size}"


def rot(shard: Path, chance: random.Random) -> str:
    """Flips bytes of one random file of the timer log."""
    files = [path for path in shard.rglob("*") if path.is_file() and path.stat().st_size and path != wheel_of(shard)]
    rotten = chance.choice([path for path in files if path.suffix in (".log", ".sst") or "MANI" in path.name] or files)
    content = bytearray(rotten.read_bytes())
    start = chance.randrange(len(content))
    for at in range(start, min(start + 64, len(content))):
        content[at] ^= 0x55
    rotten.write_bytes(content)
    return f"{rotten.name} rotten at {start}"


def lose_file(shard: Path, chance: random.Random) -> str:
    """Deletes a table, or the file that lists the tables."""
    files = [path for path in shard.rglob("*") if path.suffix == ".sst" or path.name == "CURRENT"]
    if not files:
        return "no table to lose"
    lost = chance.choice(files)
    lost.unlink()
    return f"{lost.name} lost"


def lose_disk(shard: Path, chance: random.Random) -> str:
    shutil.rmtree(shard)
    return "directory lost"


def mix_wheels(old: Path, shard: Path, chance: random.Random) -> str:
    """Takes each page of the wheel at random from the present wheel or from an old copy."""
    wheel = wheel_of(shard)
    present, before = bytearray(wheel.read_bytes()), wheel_of(old).read_bytes()
    for at in range(0, min(len(present), len(before)), _PAGE_BYTES):
        if chance.random() < 0.5:
            present[at : at + _PAGE_BYTES] = before[at : at + _PAGE_BYTES]
    wheel.write_bytes(present)
    return "half of the wheel's pages old"


WHEEL_DAMAGES: tuple[Damage, ...] = (cut_wheel, empty_wheel, flip_wheel)
LOG_DAMAGES: tuple[Damage, ...] = (rot, lose_file)
