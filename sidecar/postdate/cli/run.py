"""`postdate run`: the sidecar itself."""

from __future__ import annotations

import sys

import click

from postdate.cli.options import Loader, configured
from postdate.sidecar.config.load import require_bootstrap


@click.command(short_help="Hold requests and deliver them when due.")
@configured
@click.option("--requests", multiple=True, metavar="TOPIC", help="Request topic to serve; repeatable.")
@click.option("--data", "data_dir", metavar="DIR", help="Directory of the timer indexes. Disposable: Kafka has it all.")
@click.option("--workers", type=int, metavar="N", help="Processes on this machine; each uses about one core.")
@click.option("--group-id", metavar="ID", help="Consumer group whose members share the shards.")
@click.option("--group-instance-id", metavar="ID", help="Static member name, where volumes stay with their process.")
@click.option("--instance", metavar="NAME", help="Name of this process in the dispatch log.")
@click.option("--http-port", type=int, metavar="PORT", help="Port for metrics, probes and the API; 0: none.")
@click.option("--log-level", metavar="LEVEL", help="debug, info, warning or error.")
def run(loader: Loader, requests: tuple[str, ...], http_port: int | None, **values: object) -> None:
    """Hold requests and deliver them when they are due, until stopped (SIGTERM, Ctrl-C).

    Prints `running: N shards` whenever the number of shards that it may deliver for changes. Needs the topics that
    `postdate topics create` makes. Waits for brokers that are away. Exits with 2 when the configuration, a right or a
    topic forbids to start, with 3 when another deployment took over its last shard, and with 6 when its client in the
    group failed six times in a row.
    """
    loaded = loader({"request_topics": requests, "http.port": http_port, **values})
    require_bootstrap(loaded.config)
    if loaded.config.workers > 1:
        from postdate.sidecar.process.workers import run_workers

        sys.exit(run_workers(loaded.config))
    from postdate.sidecar.process.daemon import run as run_daemon

    sys.exit(run_daemon(loaded.config))
