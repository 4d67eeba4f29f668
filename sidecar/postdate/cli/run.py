"""`postdate run`: the sidecar itself."""

from __future__ import annotations

import sys

import click

from postdate.cli.options import Loader, configured, data_option, requests_option
from postdate.sidecar.config.loader import require_bootstrap


@click.command(short_help="Run a sidecar: store requests and deliver them when due.")
@configured
@requests_option("Request topic to serve", multiple=True)
@data_option
@click.option("--workers", type=int, metavar="N", help="Number of processes; each uses about one core.")
@click.option("--group-id", metavar="ID", help="Consumer group whose members share the shards.")
@click.option("--group-instance-id", metavar="ID", help="Static member name, for a process that keeps its volume.")
@click.option("--instance", metavar="NAME", help="Name of this process in dispatch log and logs.")
@click.option("--http-port", type=int, metavar="PORT", help="Port for metrics, probes and the API; 0: none.")
@click.option("--log-level", metavar="LEVEL", help="debug, info, warning or error.")
def run(loader: Loader, requests: tuple[str, ...], http_port: int | None, **values: object) -> None:
    """Store requests and deliver their messages when they are due, until SIGTERM or Ctrl-C.

    Needs the topics of `postdate topics create`. Waits for unavailable brokers. Prints `running: N shards` whenever the
    number of shards that it delivers for changes. Exit code 2 if the configuration, a missing right or a topic prevents
    the start; 3 if another deployment has taken over its last shard; 6 if its group client failed six times in a row.
    """
    loaded = loader({"request_topics": requests, "http.port": http_port, **values})
    require_bootstrap(loaded.config)
    if loaded.config.workers > 1:
        from postdate.sidecar.process.workers import run_workers

        sys.exit(run_workers(loaded.config))
    from postdate.sidecar.process.daemon import run as run_daemon

    sys.exit(run_daemon(loaded.config))
