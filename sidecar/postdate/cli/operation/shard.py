"""`postdate shard status|resume|rebuild`: shows the shards of a data directory, and resumes or rebuilds one of them.

The commands need no broker and no open port: they read and write files in the directories of the shards, on the same
machine.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from postdate.cli.commands import listed, print_note
from postdate.cli.limits import DISK_FULL_SIZE_BYTES, PICK_UP_S_MAX, STATUS_SILENT_MS_MAX
from postdate.cli.options import Loader, configured_without_kafka, data_option, output_option
from postdate.sidecar.errors import IRREPLACEABLE, ConfigError, HaltReason, Loss, PostdateError
from postdate.sidecar.operation.halts import ADVICE, DISK_FULL
from postdate.sidecar.operation.instructions import REBUILD, RESUME, Instruction, instruct
from postdate.sidecar.states import State

if TYPE_CHECKING:
    from postdate.sidecar.operation.shard_directories import FoundShard

_STOPPED = (State.HALTED, State.FENCED)
_TAKING_OVER = (State.OPENING, State.FENCING, State.RECOVERING)


def _cluster_option(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option("--cluster", metavar="ID", help="Cluster id, if the directory has shards of several clusters.")(
        command
    )


@click.group(short_help="Show the shards of this machine; resume or rebuild one.")
def shard() -> None:
    """Show the shards of a data directory, and resume or rebuild one of them."""


@shard.command(short_help="Print the state of each shard.")
@configured_without_kafka
@data_option
@output_option
def status(loader: Loader, data_dir: str | None, output: str) -> None:
    """List the shards of a data directory: state, positions, pending entries; for a halted shard the reason and the
    remedy.

    Works whether or not the sidecar runs. `takeover` counts the takeovers so far; `lag` counts the requests not yet
    read; `skew` is the clock of this machine minus that of the broker, unknown until the process has committed for the
    shard. Exit code 0, also if a shard has halted.
    """
    from postdate.sidecar.operation.shard_directories import find_shards, no_shard_in, require_directory

    path = require_directory(_data_path(loader, data_dir))
    now_ms = time.time_ns() // 1_000_000
    shards = find_shards(path)
    if not shards:
        print_note(no_shard_in(path))
    for found in shards:
        click.echo(json.dumps(as_json(found, now_ms)) if output == "json" else "\n".join(as_lines(found, now_ms)))


@shard.command(short_help="Make a halted shard try again.")
@configured_without_kafka
@click.argument("name", metavar="TOPIC/PARTITION")
@click.option("--accept-loss", metavar="FIRST-END", help="Give up this range, which the halt names.")
@data_option
@_cluster_option
def resume(loader: Loader, name: str, accept_loss: str | None, data_dir: str | None, cluster: str | None) -> None:
    """Make a HALTED or FENCED shard try its takeover again, after you have removed the cause.

    If the halt names a loss, the command requires that range: --accept-loss FIRST-END, as `postdate shard status` shows
    it. Messages in an accepted range are not delivered, and no message is delivered twice. If no process serves the
    shard now, the next one that does executes the command.
    """
    found = _find(_data_path(loader, data_dir), name, cluster)
    if found.state not in _STOPPED and not _is_silent(found):
        raise PostdateError(f"{found.name} is {found.state}: there is nothing to resume")
    loss = found.status.loss if found.status is not None else None
    _instruct(found, Instruction(do=RESUME, accept=_accepted(found, loss, accept_loss)))


@shard.command(short_help="Rebuild the local index of a shard from Kafka.")
@configured_without_kafka
@click.argument("name", metavar="TOPIC/PARTITION")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@data_option
@_cluster_option
def rebuild(loader: Loader, name: str, yes: bool, data_dir: str | None, cluster: str | None) -> None:
    """Move the local index of a shard aside, and rebuild it from the topics. The old index is kept beside it.

    No message is lost as long as Kafka has all pending requests, on the request topic or, for long delays, on the store
    topic. Otherwise the shard halts and names the missing range; to undo the rebuild, move the kept directory back.
    """
    found = _find(_data_path(loader, data_dir), name, cluster)
    loss, reason = (found.status.loss, found.status.reason) if found.status is not None else (None, None)
    if loss is not None and loss.reason in IRREPLACEABLE and reason is not HaltReason.TOPIC_RECREATED:
        raise PostdateError(
            f"{found.name} has halted as {loss.reason}: only this index has what Kafka has lost, and a rebuild would "
            f"deliver it again. {ADVICE[loss.reason].action}"
        )
    if not yes:
        pending = "its entries" if found.pending is None else f"its {found.pending} pending requests"
        click.confirm(f"Move the index of {found.name} aside and rebuild {pending} from Kafka?", abort=True, err=True)
    _instruct(found, Instruction(do=REBUILD))


def as_json(found: FoundShard, now_ms: int) -> dict[str, object]:
    """Returns the JSON object of one shard: its last status, and the present counts of its wheel."""
    fields: dict[str, object] = {} if found.status is None else msgspec.to_builtins(found.status)
    reason = None if found.status is None else found.status.reason
    fields |= {
        "cluster_id": found.cluster_id,
        "requests": found.requests,
        "partition": found.partition,
        "directory": str(found.directory),
        "state": found.state.value,
        "age_ms": found.age_ms(now_ms),
        "next_request": found.next_request,
        "pending": found.pending,
        "disk_free_size_bytes": found.disk_free_size_bytes(),
    }
    if reason is not None and found.state is State.HALTED:
        fields |= {"meaning": ADVICE[reason].meaning, "action": ADVICE[reason].action}
    return fields


def as_lines(found: FoundShard, now_ms: int) -> list[str]:
    """Returns the lines of text for one shard."""
    status, age_ms = found.status, found.age_ms(now_ms)
    state = click.style(found.state.value, fg="red", bold=True) if found.state in _STOPPED else found.state.value
    numbers = {
        "next request": found.next_request,
        "next dispatch-log record": status.next_dispatch if status else None,
        "pending": found.pending,
        "takeover": status.takeover if status else None,
        "lag": status.lag if status else None,
        "skew": f"{round(status.skew_ms)} ms" if status and status.skew_ms is not None else None,
    }
    shown = "  ".join(f"{name} {'unknown' if value is None else value}" for name, value in numbers.items())
    reported = (
        "no status yet"
        if age_ms is None or status is None
        else f"reported {age_ms / 1000:.0f} s ago by {status.instance}"
    )
    lines = [f"{found.name}  {state}  {shown}  ({reported})"]
    if status is not None and status.why and found.state is not State.UNASSIGNED:
        lines.append(f"  why: {status.why}")
    if status is not None and status.held:
        lines.append(f"  held: {listed(status.held)}")
    if status is not None and found.state is State.HALTED and status.reason is not None:
        lines.append(f"  do: {ADVICE[status.reason].action}")
        if status.loss is not None:
            lines.append(f"  accept: postdate shard resume {found.name} --accept-loss {status.loss.range}")
    free = found.disk_free_size_bytes()
    is_full = free is not None and free < DISK_FULL_SIZE_BYTES
    if is_full and not (status is not None and status.why.startswith(DISK_FULL)):
        lines.append(
            f"  disk: {free:,} bytes free on the disk of {found.directory}. {DISK_FULL[0].upper()}{DISK_FULL[1:]}"
        )
    if _is_silent(found, now_ms) and found.state is not State.UNASSIGNED and not is_full:
        busy = " (or it is in a long takeover, which writes no status)" if found.state in _TAKING_OVER else ""
        lines.append(f"  no process of this machine serves it now{busy}")
    return lines


def _data_path(loader: Loader, data_dir: str | None) -> Path:
    return loader({"data_dir": data_dir}).config.data_path


def _find(data: Path, name: str, cluster: str | None) -> FoundShard:
    """Returns the shard with this name, in the cluster with the id `cluster` if it is given. Raises ConfigError if no
    shard matches, or more than one."""
    from postdate.sidecar.operation.shard_directories import find_shards

    matches = [found for found in find_shards(data) if found.name == name and cluster in (None, found.cluster_id)]
    if not matches:
        raise ConfigError(f"no shard {name} in {data}: postdate shard status lists them")
    if len(matches) > 1:
        raise ConfigError(
            f"{name} exists for several clusters; choose one with --cluster:"
            f" {listed([found.cluster_id for found in matches])}"
        )
    return matches[0]


def _accepted(found: FoundShard, loss: Loss | None, text: str | None) -> Loss | None:
    """Returns the accepted loss; None if neither the halt nor `text` names one. Raises ConfigError if `text` is not the
    range that the halt names."""
    if text is None:
        if loss is not None:
            raise ConfigError(
                f"{found.name} would give up offsets [{loss.first}, {loss.end}) of {loss.topic}: read the output of "
                f"postdate shard status, and add --accept-loss {loss.range} if you agree"
            )
        return None
    if loss is None:
        raise ConfigError(f"{found.name} has reported no loss to accept")
    if text != loss.range:
        raise ConfigError(f"{found.name} reported the range {loss.range}, not {text}")
    return loss


def _instruct(found: FoundShard, instruction: Instruction) -> None:
    """Writes the instruction. If a process serves the shard, waits until it has read the instruction, at most
    PICK_UP_S_MAX."""
    path = instruct(found.directory, instruction)
    if _is_silent(found):
        print_note(f"no process serves {found.name} now; the next process that does will carry it out")
        return
    deadline = time.monotonic() + PICK_UP_S_MAX
    while path.exists():
        if time.monotonic() > deadline:
            print_note(f"{found.name} is busy and will carry it out later")
            return
        time.sleep(0.1)
    print_note(f"{found.name} accepted {instruction.do}; postdate shard status shows the result")


def _is_silent(found: FoundShard, now_ms: int | None = None) -> bool:
    age_ms = found.age_ms(time.time_ns() // 1_000_000 if now_ms is None else now_ms)
    return age_ms is None or age_ms > STATUS_SILENT_MS_MAX or found.status is None or not found.status.served
