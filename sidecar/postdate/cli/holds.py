"""`postdate hold delivery|intake|target|list`, `postdate release delivery|intake|target`, `postdate drain`: keep shards
from doing something for a while, and hand a process's shards over.

Asks the processes that run, with the token; what is held is kept by Kafka, beside the group's offsets. Not to be mixed
up with `postdate shard resume`, which is for a shard that has stopped by itself.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from postdate.cli.commands import say
from postdate.cli.options import output_option
from postdate.cli.processes import asks_processes, remark
from postdate.sidecar.errors import ConfigError, TransientError
from postdate.wire.texts import counted

if TYPE_CHECKING:
    from postdate.sidecar.http.deployment import Deployment

_SHARDS = click.argument("shards", nargs=-1, metavar="[TOPIC[/PARTITION]]...")


@click.group(short_help="Keep shards from delivering, or from taking in.")
def hold() -> None:
    """Keep shards from delivering, or from taking in requests, until they are released.

    Says so to the processes that run, with the token (--token-file). Without SHARDS all of them are meant. What is held
    stays held when a process is started anew and when a shard moves to another one; nothing of it is lost, early or
    delivered twice. Cancel and reschedule go on to work while the delivery is held.
    """


@click.group(short_help="Let go what `postdate hold` holds.")
def release() -> None:
    """Let go what `postdate hold` holds: what is due by then leaves at once."""


def _add(group: click.Group, action: str, doing: dict[str, str]) -> None:
    """The three commands of a group."""

    @group.command("delivery", short_help=doing["delivery"])
    @asks_processes
    @_SHARDS
    @output_option
    def delivery(deployment: Deployment, shards: tuple[str, ...], output: str) -> None:
        _change(deployment, action, {"what": "delivery"}, shards, output)

    @group.command("intake", short_help=doing["intake"])
    @asks_processes
    @_SHARDS
    @output_option
    def intake(deployment: Deployment, shards: tuple[str, ...], output: str) -> None:
        _change(deployment, action, {"what": "intake"}, shards, output)

    @group.command("target", short_help=doing["target"])
    @asks_processes
    @click.argument("target", metavar="TARGET")
    @_SHARDS
    @output_option
    def target(deployment: Deployment, target: str, shards: tuple[str, ...], output: str) -> None:
        _change(deployment, action, {"what": "target", "target": target}, shards, output)


_add(
    hold,
    "hold",
    {
        "delivery": "Deliver nothing from these shards.",
        "intake": "Read no requests: cancels wait as well.",
        "target": "Deliver nothing to one target.",
    },
)
_add(
    release,
    "release",
    {"delivery": "Deliver again.", "intake": "Read requests again.", "target": "Deliver to a target again."},
)


@hold.command("list", short_help="Print how every shard stands, and what is held.")
@asks_processes
@output_option
def list_(deployment: Deployment, output: str) -> None:
    """Print the state of every shard of the deployment, who holds it, and what of it is held."""
    shards = deployment.overview()["shards"]
    if not shards:
        say("no process holds a shard")
    for shard in shards:
        if output == "json":
            click.echo(json.dumps({name: value for name, value in shard.items() if name not in ("load", "lateness")}))
        else:
            name = f"{shard['topic']}/{shard['partition']}"
            click.echo(f"{name}  {shard['state']}  at {shard['process']}  held: {_words(shard)}")
    remark(deployment)


@click.command(short_help="Hand all shards of a process to the others.")
@asks_processes
@output_option
def drain(deployment: Deployment, output: str) -> None:
    """Let the process at --url leave the group: the others take its shards over at once, and it takes none any more
    until it is started anew. It goes on to run, not ready, so stop it when you like.

    Refused where no other process is there to take them.
    """
    told = deployment.drain()
    if output == "json":
        click.echo(json.dumps(told))
    else:
        click.echo(f"{told['instance']} hands over {counted(len(told['draining']), 'shard')}")


def _change(deployment: Deployment, action: str, body: dict[str, Any], shards: tuple[str, ...], output: str) -> None:
    """Ask for each shard or topic named, and fail where one of them was not reached: it goes on as before."""
    missed = 0
    for place in map(_place, shards or ("",)):
        meant = [(name, str(value)) for name, value in place.items()]
        shards_told = deployment.change(f"/api/v1/{action}", body | place, meant)["shards"]
        if "partition" in place and not shards_told and not deployment.not_asked:
            name = f"{place['topic']}/{place['partition']}"
            raise ConfigError(f"{name} is no shard of this deployment: postdate hold list names them all")
        for shard in shards_told:
            text = f"{shard['topic']}/{shard['partition']}  held: {_words(shard)}"
            click.echo(json.dumps(shard) if output == "json" else text)
        remark(deployment)
        missed += len(deployment.not_asked)
    if missed:
        raise TransientError(f"not reached, and as before: {counted(missed, 'shard')}; ask again")


def _place(text: str) -> dict[str, Any]:
    """The request topic and the partition of `TOPIC/PARTITION` or `TOPIC`. Raises ConfigError."""
    topic, slash, index = text.partition("/")
    if slash and not (index.isascii() and index.isdigit()):
        raise ConfigError(f"{text}: give TOPIC or TOPIC/PARTITION")
    return {"topic": topic, "partition": int(index)} if slash else {"topic": topic} if topic else {}


def _words(shard: dict[str, Any]) -> str:
    return ", ".join(shard["held"]) or "nothing"
