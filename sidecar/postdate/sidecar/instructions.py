"""What a person asks of a shard: `instruction.json` in its directory, written by `postdate shard resume|rebuild`.

The process that serves the shard looks for it every second, removes it, and then does what it says; so it is done once
at most, and where no process serves the shard now, the next one that does begins with it.

Thread rule: functions. Written by commands, taken by the shard's thread.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Final, Literal

import msgspec

from postdate.sidecar.errors import Loss
from postdate.sidecar.shard_status import read_bounded, write_whole

INSTRUCTION_NAME: Final = "instruction.json"

RESUME: Final = "resume"
REBUILD: Final = "rebuild"


class Instruction(msgspec.Struct, kw_only=True, frozen=True):
    """`resume`: try the takeover again, in spite of a loss where `accept` names it. `rebuild`: move the index aside."""

    v: Literal[1] = 1
    do: Literal["resume", "rebuild"]
    accept: Loss | None = None


_decoder = msgspec.json.Decoder(Instruction)


def instruct(directory: Path, instruction: Instruction) -> Path:
    """Leave an instruction for the shard of a directory, in place of an earlier one; its file. Raises OSError."""
    path = directory / INSTRUCTION_NAME
    write_whole(path, msgspec.json.encode(instruction), durable=True)
    return path


def is_instructed(directory: Path) -> bool:
    """True where an instruction lies there. One system call, some microseconds."""
    return os.access(f"{directory}/{INSTRUCTION_NAME}", os.F_OK)


def take_instruction(directory: Path) -> Instruction | None:
    """The instruction that lies there, which is removed first; None where there is none that can be read.

    Costs one system call where there is none.
    """
    path = directory / INSTRUCTION_NAME
    data = read_bounded(path)
    if data is None:
        return None
    with suppress(OSError):
        path.unlink()
        with suppress(msgspec.MsgspecError):
            return _decoder.decode(data)
    return None
