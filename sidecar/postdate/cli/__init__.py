"""The command line: `postdate NOUN VERB`, one module for each noun.

Scripts may rely on this: results go to stdout (with `--output json`, one JSON object on each line), everything else to
stderr. Exit codes: 0 ok, 1 failed, 2 usage or configuration, 3 fenced, 4 violation found, 5 not everything verified,
6 client failed. A command raises the errors of `postdate.sidecar.errors`; `Commands` prints them and maps them to exit
codes. Commands import slow modules inside their functions, so that `--help` is fast and Spark stays optional.
"""

from __future__ import annotations

from postdate.cli import (
    audit,
    bench,
    bulk,
    config,
    controls,
    dead_letters,
    demo,
    dev,
    holds,
    pending,
    repair,
    report,
    run,
    schedule,
    send,
    shard,
    top,
    topics,
    version,
)
from postdate.cli.commands import Commands


def main() -> None:
    """Run the program `postdate`."""
    postdate(prog_name="postdate")


postdate = Commands(
    "postdate",
    help="Deliver Kafka messages later: exactly once, never early, byte for byte as they were sent.",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    params=[version.OPTION],
)
for command in (
    bench.bench,
    demo.demo,
    dev.dev,
    topics.topics,
    run.run,
    shard.shard,
    top.top,
    send.send,
    schedule.schedule,
    controls.cancel,
    controls.reschedule,
    controls.deliver,
    pending.pending,
    holds.hold,
    holds.release,
    holds.drain,
    dead_letters.dead_letters,
    audit.audit,
    bulk.bulk,
    repair.repair,
    report.report,
    config.config,
    version.version,
):
    postdate.add_command(command)
