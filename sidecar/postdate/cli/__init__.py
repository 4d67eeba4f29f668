"""The command line: `postdate NOUN VERB`, or `postdate VERB`. Related commands share a module, and packages group the
modules by purpose.

Scripts may rely on this: results go to stdout (with `--output json`, one JSON object on each line), and all other
output to stderr. `EXIT_CODES` lists the exit codes, and docs/operations.md describes them. A command raises the errors
of `postdate.sidecar.errors`, `postdate.kafka.errors` and click; `Commands` prints them and maps them to exit codes. The
module of a command is imported when the command is first used, and slow modules only inside its functions. So commands
start quickly, and Spark stays optional.

Imports `postdate.sidecar`, the packages below `postdate.sidecar`, `postdate.tools`, and, inside functions of `spark`,
`postdate.spark`.
Its modules and packages in import order; each may import those listed before it: `limits`, `commands`, `options`,
`request_options`, `tools`, `spark`, `operation`, `requests`. The other modules may import all of these.
Thread rule: the main thread.
"""

from __future__ import annotations

import atexit
import gc
import os
import sys
from typing import NoReturn

from postdate.cli import version
from postdate.cli.commands import Commands, Imported
from postdate.sidecar.errors import Exit
from postdate.sidecar.process.limits import GC_THRESHOLDS


def main() -> NoReturn:
    """Runs the program `postdate`, and ends the process with its exit code."""
    gc.set_threshold(*GC_THRESHOLDS)
    try:
        postdate(prog_name="postdate")
    except SystemExit as end:
        if not isinstance(end.code, int):
            raise
        _exit(end.code)
    _exit(Exit.OK)


def _exit(code: int) -> NoReturn:
    """Runs Python's exit functions, and ends the process without the exit functions of native libraries.

    OpenSSL's exit function frees state that a thread of librdkafka may still use in a TLS handshake, for example after
    a request has timed out. *Measured*: 18 of 300 processes that did not trust the certificate of a broker ended with
    SIGSEGV.
    """
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:  # closed by the parent process
            stream.flush()
    os._exit(code)


EXIT_CODES = (
    "Exit codes: 0 ok, 1 failed, 2 usage or configuration, 3 fenced (run) or too late (audit), 4 violation found, "
    "5 not everything verified (audit), 6 client failed (run). docs/operations.md describes them."
)

postdate = Commands(
    "postdate",
    help="Deliver Kafka messages later: exactly once, never early, byte for byte as they were sent.",
    epilog=EXIT_CODES,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    params=[version.OPTION],
    commands=Imported(
        {
            "bench": "tools.bench",
            "demo": "tools.demo",
            "dev": "tools.dev",
            "topics": "operation.topics",
            "run": "run",
            "shard": "operation.shard",
            "top": "operation.top",
            "send": "requests.send",
            "schedule": "requests.schedule",
            "cancel": "requests.controls",
            "reschedule": "requests.controls",
            "deliver": "requests.controls",
            "pending": "operation.pending",
            "hold": "operation.holds",
            "release": "operation.holds",
            "drain": "operation.holds",
            "dead-letters": "operation.dead_letters",
            "audit": "spark.audit",
            "bulk": "spark.bulk",
            "repair": "spark.repair",
            "report": "spark.report",
            "config": "config",
            "version": "version",
        }
    ),
)
