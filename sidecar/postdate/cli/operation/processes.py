"""The options that select the running processes to query, and the `Deployment` of these processes.

The user may name one or more processes. Otherwise the command looks up the members of the consumer group, as the
processes do, or, if the configuration names no broker, queries a process on this machine.
"""

from __future__ import annotations

import functools
import getpass
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click

from postdate.cli.commands import warn
from postdate.cli.options import Command, Loader, configured, configured_without_kafka
from postdate.sidecar.cluster.connection import admin_of, kafka_of
from postdate.sidecar.config.setting_sources import read_secret
from postdate.sidecar.config.settings import Config
from postdate.sidecar.errors import TransientError
from postdate.wire.values.texts import counted

if TYPE_CHECKING:
    from postdate.sidecar.http.queries.deployment import Deployment

_HERE = "http://127.0.0.1:8080"


def processes_options(command: Command) -> Callable[..., Any]:
    """Adds the options that select processes; the command gets a `Deployment` as its first argument."""
    text = f"Process to query, instead of the members of the group; repeatable. Without a broker: {_HERE}."
    return _with_deployment(command, text, by_group=True)


def one_process_options(command: Command) -> Callable[..., Any]:
    """Does the same as `processes_options` for a command that acts on one process. The help does not show the options
    that find the consumer group."""
    text = f"Process to drain. Required if the configuration names a broker; otherwise {_HERE} is the default."
    return _with_deployment(command, text, by_group=False)


def _with_deployment(command: Command, url_text: str, by_group: bool) -> Callable[..., Any]:
    @(configured if by_group else configured_without_kafka)
    @click.option("--group-id", metavar="ID", hidden=not by_group, help="Consumer group of the sidecars.")
    @click.option("--url", "urls", multiple=True, metavar="URL", help=url_text)
    @click.option(
        "--token-file",
        type=click.Path(path_type=Path),
        help="File with the bearer token, for changes and for ports of other machines. [http.token_file]",
    )
    @functools.wraps(command)
    def wrapped(
        loader: Loader, group_id: str | None, urls: tuple[str, ...], token_file: Path | None, **rest: Any
    ) -> Any:
        config = loader({"group_id": group_id}).config
        return command(deployment_of(config, urls, token_file), **rest)

    return wrapped


def warn_about_unqueried_shards(deployment: Deployment) -> None:
    """Prints on stderr the shards that did not answer."""
    for shard in deployment.not_asked:
        why = f": {shard['why']}" if shard["why"] else ""
        warn(f"{shard['topic']}/{shard['partition']} is {shard['state']} and was not queried{why}")


def deployment_of(config: Config, urls: tuple[str, ...], token_file: Path | None) -> Deployment:
    """Returns the processes at these addresses. Without addresses, returns the members of the group, or, if the
    configuration names no broker, the process at the default address. Raises ConfigError, TransientError,
    KafkaFault."""
    path = token_file or config.http.token_file
    return _deployment(config, urls, read_secret(path).strip() if path is not None else "")


def _deployment(config: Config, urls: tuple[str, ...], token: str) -> Deployment:
    if not urls and config.kafka.bootstrap_servers:
        return _found(config, token)
    from postdate.sidecar.http.queries.api_client import Api
    from postdate.sidecar.http.queries.deployment import Deployment, Peer

    named = urls or (_HERE,)
    labels = _labels()
    peers = [Peer(url, Api(url, token, ca_file=config.http.tls_ca_file, labels=labels)) for url in named]
    return Deployment(peers, frozenset(), strict=True, alone=len(named) > 1)


def _found(config: Config, token: str) -> Deployment:
    """Returns the processes of the members of the group. Raises KafkaFault, and TransientError if no member has a
    usable HTTP address."""
    from postdate.sidecar.http.api.peers import read_group
    from postdate.sidecar.http.queries.deployment import Deployment, peers_of

    with admin_of(kafka_of(config)) as admin:
        members, expected = read_group(admin, config.group_id)
    peers = peers_of(members, token, config.http, labels=_labels())
    if not any(peer.api for peer in peers):
        raise TransientError(
            f"group {config.group_id} has {counted(len(members), 'member')}, and none with an HTTP port: does postdate"
            " run serve this group (--group-id)?"
        )
    return Deployment(peers, expected)


def _labels() -> dict[str, str]:
    """Returns headers for the log of actions: the user's name, and one action id for all requests of this command."""
    from postdate.sidecar.http.action_log import ACTION, ACTOR, new_action_id

    try:
        name = getpass.getuser()
    except (KeyError, OSError):  # a container may have a user without a name
        name = ""
    return {ACTION: new_action_id(), **({ACTOR: quote(name)} if name else {})}
