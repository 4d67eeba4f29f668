"""`postdate hold delivery|intake|target|list`, `postdate release delivery|intake|target`, `postdate drain`: pause
shards, and hand over the shards of a process.

The commands call the HTTP API of the running processes, with the token. Kafka stores the holds, in the metadata of the
group's offsets. `postdate shard resume` has another purpose: it makes a halted shard try its takeover again.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from postdate.cli.commands import print_note
from postdate.cli.operation.processes import one_process_options, processes_options, warn_about_unqueried_shards
from postdate.cli.options import output_option
from postdate.sidecar.errors import ConfigError, TransientError
from postdate.wire.values.texts import counted

if TYPE_CHECKING:
    from postdate.sidecar.http.queries.deployment import Deployment

_SHARDS = click.argument("shards", nargs=-1, metavar="[TOPIC[/PARTITION]]...")


@click.group(short_help="Pause delivery, intake, or one target.")
def hold() -> None:
    """Pause the delivery or the intake of shards, or the delivery to one target, until `postdate release`.

    Needs running processes and their token (--token-file). Without TOPIC[/PARTITION] it holds all shards. A hold
    survives restarts and moves with its shard. No held message is lost, early or delivered twice. While delivery is
    held, cancel and reschedule still work.
    """


@click.group(short_help="End a hold.")
def release() -> None:
    """End a hold. Messages that are due by then are delivered immediately."""


def _add(group: click.Group, action: str, texts: dict[str, str]) -> None:
    """Adds the commands `delivery`, `intake` and `target` to a group. `texts`: the help of each command."""

    @group.command("delivery", help=texts["delivery"])
    @processes_options
    @_SHARDS
    @output_option
    def delivery(deployment: Deployment, shards: tuple[str, ...], output: str) -> None:
        _change(deployment, action, {"what": "delivery"}, shards, output)

    @group.command("intake", help=texts["intake"])
    @processes_options
    @_SHARDS
    @output_option
    def intake(deployment: Deployment, shards: tuple[str, ...], output: str) -> None:
        _change(deployment, action, {"what": "intake"}, shards, output)

    @group.command("target", help=texts["target"])
    @processes_options
    @click.argument("target", metavar="TARGET")
    @_SHARDS
    @output_option
    def target(deployment: Deployment, target: str, shards: tuple[str, ...], output: str) -> None:
        _change(deployment, action, {"what": "target", "target": target}, shards, output)


_add(
    hold,
    "hold",
    {
        "delivery": "Pause delivery. The shards still read requests and carry out cancels.",
        "intake": "Pause the reading of requests, including cancels.",
        "target": "Pause the delivery to TARGET; its due messages are parked.",
    },
)
_add(
    release,
    "release",
    {
        "delivery": "Resume delivery.",
        "intake": "Resume the reading of requests.",
        "target": "Resume the delivery to TARGET.",
    },
)


@hold.command("list", short_help="Print the state and the holds of every shard.")
@processes_options
@output_option
def list_(deployment: Deployment, output: str) -> None:
    """Print the state, the process and the holds of every shard of the deployment."""
    shards = deployment.overview()["shards"]
    if not shards:
        print_note("no process holds a shard")
    for shard in shards:
        if output == "json":
            click.echo(json.dumps({name: value for name, value in shard.items() if name not in ("load", "lateness")}))
        else:
            name = f"{shard['topic']}/{shard['partition']}"
            click.echo(f"{name}  {shard['state']}  at {shard['process']}  held: {_words(shard)}")
    warn_about_unqueried_shards(deployment)


@click.command(short_help="Hand all shards of a process to the others.")
@one_process_options
@output_option
def drain(deployment: Deployment, output: str) -> None:
    """Make the process at --url leave the group. The others take over its shards immediately. The process keeps running
    without shards and is not ready; it takes no shards until it is restarted.

    The command is refused if there is no other process.
    """
    result = deployment.drain()
    if output == "json":
        click.echo(json.dumps(result))
    else:
        click.echo(f"{result['instance']} hands over {counted(len(result['draining']), 'shard')}")


def _change(deployment: Deployment, action: str, body: dict[str, Any], names: tuple[str, ...], output: str) -> None:
    """Applies the change to each named shard or topic, or to all shards. Raises ConfigError before any change if a
    named one does not exist, and TransientError if the change of a shard was not confirmed."""
    places = {name: _place(name) for name in names} or {"": {}}
    if names:
        shards = deployment.overview()["shards"] + deployment.not_asked
        for name, place in places.items():
            if not any(place.items() <= shard.items() for shard in shards):
                raise _absent(name)
    unreached = 0
    for name, place in places.items():
        query = [(key, str(value)) for key, value in place.items()]
        changed = deployment.change(f"/api/v1/{action}", body | place, query)["shards"]
        if name and not changed and not deployment.not_asked:
            raise _absent(name)  # the shard has moved since to a process that was not named
        for shard in changed:
            text = f"{shard['topic']}/{shard['partition']}  held: {_words(shard)}"
            click.echo(json.dumps(shard) if output == "json" else text)
        warn_about_unqueried_shards(deployment)
        unreached += len(deployment.not_asked)
    if unreached:
        raise TransientError(f"{counted(unreached, 'shard')} not reached, and unchanged; repeat the command")


def _absent(name: str) -> ConfigError:
    return ConfigError(f"{name} names no shard of these processes; postdate hold list prints all shards")


def _place(text: str) -> dict[str, Any]:
    """Returns the request topic and, if it is named, the partition of `TOPIC/PARTITION` or `TOPIC`. Raises
    ConfigError."""
    topic, slash, index = text.partition("/")
    if slash and not (index.isascii() and index.isdigit()):
        raise ConfigError(f"{text}: give TOPIC or TOPIC/PARTITION")
    return {"topic": topic, "partition": int(index)} if slash else {"topic": topic}


def _words(shard: dict[str, Any]) -> str:
    return ", ".join(shard["held"]) or "nothing"
