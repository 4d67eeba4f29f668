"""Handwritten changes, each of which removes one safeguard: a named fast test must detect it.

Each replaces a text in a copy of the repository, in which the named tests then run.
`tests/unit/support/test_mutation.py` checks that the texts and the tests exist.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

#: The files that tests read.
COPIED = ("sidecar", "wheel", "connectors", "tests", "charts", "docs", "examples", "pyproject.toml", "README.md")
_SIDECAR, _WHEEL = "sidecar/postdate/sidecar", "wheel/postdate/wheel"


@dataclass(frozen=True)
class Deliberate:
    """`old` occurs once in the file at `path`. `test`: a test file below `tests`, and optionally one of its tests."""

    name: str
    path: str
    old: str
    new: str
    test: str


DELIBERATE = (
    Deliberate(
        "a control acts on a request behind it",
        f"{_SIDECAR}/index/apply_requests.py",
        "return (acts_on, id_key) if acts_on < offset else (-1, None)",
        "return acts_on, id_key",
        "unit/sidecar/index/test_apply_requests.py",
    ),
    Deliberate(
        "a message expires at the end of its grace, not after it",
        f"{_SIDECAR}/dispatch/decisions.py",
        "now_ms > entry.due + entry.grace_ms",
        "now_ms >= entry.due + entry.grace_ms",
        "unit/sidecar/dispatch/test_batch.py",
    ),
    Deliberate(
        "the sync of the timer log does nothing",
        f"{_WHEEL}/timer_log/database.py",
        "self._call(lambda db: db.flush_wal(True))",
        "self._call(lambda db: None)",
        "unit/wheel/test_timer_log.py",
    ),
    Deliberate(
        "the sync of the timer log leaves the write-back to the system",
        f"{_WHEEL}/timer_log/database.py",
        "flush_wal(True)",
        "flush_wal(False)",
        "unit/wheel/test_timer_log.py",
    ),
    Deliberate(
        "a new timer log is not synced",
        f"{_WHEEL}/timer_log/timer_log.py",
        "        db.write(batch)\n        db.sync()\n",
        "        db.write(batch)\n",
        "unit/wheel/test_timer_log.py",
    ),
    Deliberate(
        "the timer log is never synced while a shard delivers",
        f"{_SIDECAR}/shard/housekeeping.py",
        "            index.sync()\n",
        "",
        "unit/sidecar/shard/test_housekeeping.py",
    ),
    Deliberate(
        "the timer log is not synced when it is closed",
        f"{_WHEEL}/index.py",
        "            if clean:\n                self._log.sync()\n",
        "            pass\n",
        "unit/wheel/test_wheel_file.py",
    ),
    Deliberate(
        "the wheel is not written back",
        f"{_WHEEL}/timing_wheel/wheel_file.py",
        "                self._write_stamp(log_sequence, next_request, clean=True)\n"
        "                self._platform.sync(self._mapped)\n",
        "                self._write_stamp(log_sequence, next_request, clean=True)\n",
        "unit/wheel/test_wheel_file.py",
    ),
    Deliberate(
        "the machine does not write the wheel back",
        f"{_WHEEL}/timing_wheel/platform.py",
        "mapped.flush()",
        "pass",
        "unit/wheel/test_wheel_file.py",
    ),
    Deliberate(
        "a transaction is committed although a record has no report",
        f"{_SIDECAR}/transaction/transaction.py",
        "self._check(left, content)",
        "self._check(0, content)",
        "unit/sidecar/transaction/test_transaction.py",
    ),
    Deliberate(
        "a missing target is given up before the retry budget after the due time",
        f"{_SIDECAR}/dispatch/decisions.py",
        "if waited >= self._budget_ms and now_ms >= spent_ms and is_known:",
        "if waited >= self._budget_ms and is_known:",
        "unit/sidecar/dispatch/test_batch.py",
    ),
    Deliberate(
        "an isolated target is given up before the retry budget after the due time",
        f"{_SIDECAR}/dispatch/targets/fault_attribution.py",
        "return isolated.refusal if now_ms >= due_ms + self._budget_ms else None",
        "return isolated.refusal",
        "unit/sidecar/dispatch/targets/test_fault_attribution.py",
    ),
    Deliberate(
        "a refused request counts as delivered before it is read",
        f"{_SIDECAR}/index/apply_fates.py",
        "sent=sent and had_time",
        "sent=sent",
        "unit/sidecar/index/test_apply_requests.py",
    ),
    Deliberate(
        "the metric of rate-limited messages is doubled",
        f"{_SIDECAR}/http/metrics/collector.py",
        "sum(each.rated for each in all_)) for",
        "2 * sum(each.rated for each in all_)) for",
        "unit/sidecar/http/test_server.py",
    ),
    Deliberate(
        "messages beyond their rate are counted twice",
        f"{_SIDECAR}/dispatch/dispatcher.py",
        "self._ctx.counts.rated += len(batch.over)",
        "self._ctx.counts.rated += 2 * len(batch.over)",
        "unit/sidecar/dispatch/targets/test_target_rates.py",
    ),
    Deliberate(
        "a passphrase is shown",
        f"{_SIDECAR}/config/values.py",
        '_SECRET = re.compile(r"(password|passphrase|',
        '_SECRET = re.compile(r"(password|',
        "unit/cli/test_config_docs.py",
    ),
    Deliberate(
        "a property that the client library does not have is shown",
        f"{_SIDECAR}/config/values.py",
        "return is_secret(name) or name not in PROPERTY_NAMES",
        "return is_secret(name)",
        "unit/cli/test_config_docs.py",
    ),
    Deliberate(
        "the chart fixes the time to end",
        "charts/postdate/templates/statefulset.yaml",
        "{{ int .Values.terminationGracePeriodSeconds }}",
        "30",
        "chart/test_chart_every_value.py::test_every_value_reaches_the_rendering",
    ),
    Deliberate(
        "the chart fixes the time that a pod must be ready",
        "charts/postdate/templates/statefulset.yaml",
        "{{ int .Values.minReadySeconds }}",
        "5",
        "chart/test_chart_every_value.py::test_every_value_reaches_the_rendering",
    ),
    Deliberate(
        "the chart fixes the number of failed probes",
        "charts/postdate/templates/_pod.tpl",
        "{{ int .probe.failureThreshold }}",
        "3",
        "chart/test_chart_every_value.py::test_every_value_reaches_the_rendering",
    ),
    Deliberate(
        "the page has no content security policy",
        f"{_SIDECAR}/http/api/page_files.py",
        '"Content-Security-Policy": (',
        '"X-Policy": (',
        "unit/sidecar/http/test_server.py",
    ),
    Deliberate(
        "the HTTP port takes any number of connections",
        f"{_SIDECAR}/http/server/connections.py",
        "if len(self.connections) > HTTP_CONNECTIONS_MAX:",
        "if False:",
        "unit/sidecar/http/test_flood.py::test_a_client_with_many_connections_displaces_only_its_own",
    ),
    Deliberate(
        "an index that has missed fates is used",
        f"{_SIDECAR}/takeover/takeover.py",
        "progress.empty = progress.empty or _has_missed(ctx, bounded, progress)",
        "progress.empty = progress.empty",
        "unit/sidecar/takeover/test_expired.py",
    ),
    Deliberate(
        "a break in seq behind an index is not seen",
        f"{_SIDECAR}/takeover/takeover.py",
        "return decode(ctx.log, oldest).seq != index.checkpoint.seq + 1",
        "return False",
        "unit/sidecar/takeover/test_expired.py",
    ),
    Deliberate(
        "a rebuild asks where STORE ends",
        f"{_SIDECAR}/takeover/store_reading.py",
        "    end = write_bound(ctx)\n",
        "    from postdate.kafka.interface import Isolation\n\n"
        "    end = ctx.admin.end_offsets([ctx.store], Isolation.READ_UNCOMMITTED)[ctx.store]\n",
        "unit/sidecar/transaction/test_bound_check.py",
    ),
    Deliberate(
        "a duty that fails stops the shard",
        f"{_SIDECAR}/shard/housekeeping.py",
        "        except KafkaFault as fault:\n",
        "        except ZeroDivisionError as fault:\n",
        "unit/sidecar/dispatch/test_isolation.py",
    ),
    Deliberate(
        "a duty that fails is tried again at once",
        f"{_SIDECAR}/shard/housekeeping.py",
        "            self._due_at[name] = self._ctx.clock.steady_ms() + delay_ms\n",
        "",
        "unit/sidecar/dispatch/test_isolation.py",
    ),
)


def survivors(root: Path, jobs: int, chosen: tuple[Deliberate, ...] = DELIBERATE) -> list[str]:
    """Returns the names of the changes that their tests do not detect. Each runs in a copy of the repository."""

    def survives(change: Deliberate) -> bool:
        with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
            for name in COPIED:
                _copy(root / name, Path(folder) / name)
            path = Path(folder) / change.path
            path.write_text(path.read_text(encoding="utf-8").replace(change.old, change.new), encoding="utf-8")
            pytest = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", f"tests/{change.test}"]
            done = subprocess.run(pytest, cwd=folder, capture_output=True, text=True, check=False)
            assert done.returncode in (0, 1), f"{change.name}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
            return done.returncode == 0

    with ThreadPoolExecutor(jobs) as pool:
        return [change.name for change, is_left in zip(chosen, pool.map(survives, chosen), strict=True) if is_left]


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        shutil.copy(source, target)
