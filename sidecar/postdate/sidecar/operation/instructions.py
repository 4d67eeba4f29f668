"""Instructions of an operator for a shard: `instruction.json` in its directory, from `postdate shard resume|rebuild`.

The process that serves the shard checks for the file every second, removes it, and then carries out the instruction. So
an instruction is carried out at most once. If no process serves the shard, the next process to serve it starts with the
instruction.

Thread rule: functions. Commands write an instruction, and the shard's thread takes it.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Final, Literal

import msgspec

from postdate.sidecar.errors import Loss
from postdate.sidecar.operation.shard_status import read_bounded, write_whole

INSTRUCTION_NAME: Final = "instruction.json"

RESUME: Final = "resume"
REBUILD: Final = "rebuild"


class Instruction(msgspec.Struct, kw_only=True, frozen=True):
    """`resume`: retry the takeover, accepting the loss in `accept`, if any. `rebuild`: move the index aside."""

    v: Literal[1] = 1
    do: Literal["resume", "rebuild"]
    accept: Loss | None = None


_decoder = msgspec.json.Decoder(Instruction)


def instruct(directory: Path, instruction: Instruction) -> Path:
    """Writes an instruction for the shard of a directory, replacing an earlier one; returns its file. Raises
    OSError."""
    path = directory / INSTRUCTION_NAME
    write_whole(path, msgspec.json.encode(instruction), durable=True)
    return path


def is_instructed(directory: Path) -> bool:
    """True if there is an instruction. One system call, some microseconds."""
    return os.access(f"{directory}/{INSTRUCTION_NAME}", os.F_OK)


def take_instruction(directory: Path) -> Instruction | None:
    """Removes and returns the instruction; None if there is none, or if it cannot be read.

    Costs one system call if there is none.
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
