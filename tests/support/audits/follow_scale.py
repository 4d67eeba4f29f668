"""Measures how far behind live traffic `postdate audit --follow` stays while many messages are pending.

A program. It writes `--pending` requests that are due in a year, in the form that sidecars leave (`past_dispatches`),
to a fresh broker, and audits them into a new state. Then it starts a sidecar with a steady load on another request
topic, and follows both topics for `--seconds` in one Spark session of two threads and 4 GB. For each step the program
prints the duration and the lag. The lag is the time between the instant when the *previous* step fixed its end offsets
and the report of this step. So no record that this step reports is older than the lag.

No step may find a violation. The exit code is 1 if any step after the first was more than BEHIND_S_MAX behind.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from postdate.spark.audit.continuous import FollowOptions, follow
from postdate.spark.audit.job import audit_with_state
from postdate.spark.audit.options import AuditOptions
from postdate.spark.audit.output import AuditOutcome
from postdate.spark.job.progress import Reporter
from postdate.spark.session.start import spark_session
from support.audits.following import traffic
from support.audits.past_dispatches import Filling, fill
from support.brokers.broker import local_broker
from support.deployments.sidecar_deployment import new_deployment

#: Seconds: the aim in benchmarks/audit.md.
BEHIND_S_MAX = 30.0
_PARTITIONS = 4
_MEMORY = "4g"


def main() -> int:
    parser = argparse.ArgumentParser(prog="follow_scale", description="How far behind a following audit is.")
    parser.add_argument("--pending", type=int, default=1_000_000, metavar="N", help="messages that stay pending")
    parser.add_argument("--seconds", type=float, default=180.0, metavar="S", help="how long live traffic is followed")
    given = parser.parse_args()
    settings = {"spark.driver.memory": _MEMORY}
    with (
        tempfile.TemporaryDirectory(prefix="postdate-follow-") as made,
        local_broker() as broker,
        new_deployment(broker.bootstrap_servers, Path(made, "live")) as deployment,
        new_deployment(broker.bootstrap_servers, Path(made, "held")) as unserved,
        spark_session("local[2]", settings, Reporter().report, with_delta=True) as spark,
    ):
        held, target = unserved.new_requests(_PARTITIONS), deployment.new_target(2)
        began_s = time.monotonic()
        fillings = [
            Filling(deployment.bootstrap, held, part, (target,), pending_every=1) for part in range(_PARTITIONS)
        ]
        fill(fillings, [given.pending // _PARTITIONS] * _PARTITIONS)
        _say(f"wrote {given.pending:,} pending requests in {time.monotonic() - began_s:.0f} s")
        options = AuditOptions(deployment.bootstrap, (held,), state=str(Path(made, "state")))
        began_s = time.monotonic()
        audit_with_state(spark, options, Reporter(), lambda _: None)
        _say(f"audited them into a new state in {time.monotonic() - began_s:.0f} s")
        requests = deployment.new_requests(2)
        sidecar = deployment.new_sidecar()
        sidecar.start()
        behind: list[float] = []
        ends_ms = time.time() * 1_000

        def told(outcome: AuditOutcome) -> None:
            nonlocal ends_ms
            assert not outcome.summary.violations, outcome.summary.samples
            assert outcome.state is not None
            behind.append(time.time() - ends_ms / 1_000)
            ends_ms = outcome.snapshot_ms
            counts = "  ".join(f"{name} {count:,}" for name, count in outcome.summary.counts.items() if count)
            _say(f"step of {outcome.seconds:5.1f} s, at most {behind[-1]:5.1f} s behind: {counts}")

        both = AuditOptions(deployment.bootstrap, (held, requests), state=options.state)
        until_s = time.monotonic() + given.seconds
        with traffic(deployment, requests, target):
            while time.monotonic() < until_s:
                follow(spark, FollowOptions(both, steps=1), Reporter(), told)
    worst = max(behind[1:], default=0.0)
    _say(f"at most {worst:.1f} s behind after the first step; aim {BEHIND_S_MAX:.0f} s")
    return int(worst > BEHIND_S_MAX)


def _say(sentence: str) -> None:
    sys.stdout.write(sentence + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
