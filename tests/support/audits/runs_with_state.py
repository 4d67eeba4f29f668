"""Runs audits with a state, one after the other, over a history that a test writes.

Each run audits the new records with the code that `postdate audit --state` runs itself.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path
from typing import Any

from pyspark.sql import Row, SparkSession

from postdate.spark.audit.incremental_judging import Advance, advance, write_findings
from postdate.spark.audit.ranges import TARGETS
from postdate.spark.audit.reading import expected_before_ms
from postdate.spark.job.options import LEVELS_MS_DEFAULT
from postdate.spark.job.topic_reads import RECORDS
from postdate.spark.judging.chunk_digests import ChunkDigests
from postdate.spark.judging.origin_rows import JudgingParameters
from postdate.spark.judging.stages import History as Read
from postdate.spark.records.deliveries import (
    dead_letter_rows,
    delivered_messages,
    record_rows,
    unreadable_dead_letters,
    unreadable_records,
)
from postdate.spark.records.fates import fate_rows, log_rows
from postdate.spark.records.policies import policy_rows, policy_table, read_rows
from postdate.spark.records.requests import digested_requests, understood_rows
from postdate.spark.records.verdict_records import answer_rows
from postdate.spark.rules.ordering import overtaken
from postdate.spark.session.small_tables import small_table
from postdate.spark.state.store import AuditState, StateStore, acknowledge, last_verdicts
from support.audit_cases.verdicts import SNAPSHOT
from support.audits.judging import JudgingBounds, kept, partition_table, target_row
from support.audits.written_records import LETTERS, REQUESTS, VERDICTS, RandomHistory
from support.audits.written_records import Row as Record

_END = 10_000
_TABLE = [target_row()]
_NO_BOUNDS: Mapping[int, Mapping[str, Any]] = {}


def offset_of(record: Record) -> int:
    """Returns the offset of the last request to which a record refers."""
    value, headers = record[6] or b"", dict(record[7] or [])
    if record[0].endswith(".dispatch-log"):
        return max((fate[0] for fate in json.loads(value)["fates"]), default=0)
    if record[0].endswith(".verdicts"):
        return int(json.loads(value)["origin"].rpartition("/")[2])
    return int((headers.get("postdate-origin") or b"0").rpartition(b"/")[2])


@dataclass(frozen=True)
class Ends:
    """The numbers of records of each topic that a run sees.

    `requests` is the first request offset that the run does not see. `again` is the number of log records that the
    second reading of the log sees.
    """

    requests: int = 0
    log: int = 0
    delivered: int = 0
    dead_letters: int = 0
    answers: int = 0
    again: int = 0

    @classmethod
    def at(cls, history: RandomHistory, at: int, chance: random.Random | None) -> Ends:
        """Returns ends at the request `at`. With `chance`, each end lies a random distance behind the previous end."""
        place, counts = at, [at]
        for records in (history.log, history.delivered, history.dead_letters, history.answers, history.log):
            place += chance.randrange(0, 12) if chance is not None else 0
            counts.append(sum(1 for _ in takewhile(lambda record: offset_of(record) < place, records)))  # noqa: B023
        return cls(*counts)


def all_of(history: RandomHistory) -> Ends:
    """Returns ends behind everything that was written."""
    log = len(history.log)
    return Ends(_END, log, len(history.delivered), len(history.dead_letters), len(history.answers), log)


class Runs:
    """Audits over a history, one after the other. A chunk has 2**`bits` requests; None: no chunks."""

    def __init__(self, spark: SparkSession, history: RandomHistory, directory: Path, bits: int | None = None) -> None:
        self.spark, self.history, self.bits = spark, history, bits
        self.path = str(directory / "state")
        self.last = Ends()
        self._committed: AuditState | None = None

    def audit(
        self,
        ends: Ends | None = None,
        *,
        keep: bool = True,
        in_order: bool = False,
        bounds: Mapping[int, Mapping[str, Any]] = _NO_BOUNDS,
    ) -> Advance:
        """Audits the history up to `ends`, by default the whole history.

        `bounds` are changes of the bounds by partition. `in_order` also checks the order of messages.
        """
        ends = all_of(self.history) if ends is None else ends
        store = StateStore(self.spark, self.path)
        state, history, last = self._state(), self.history, self.last
        log_end = max((record[2] + 1 for record in history.log[: ends.log]), default=0)
        bounds_of_partitions = [
            JudgingBounds(request_end=ends.requests, log_end=log_end, **bounds.get(partition, {}))
            for partition in range(history.partitions)
        ]
        partitions = partition_table(self.spark, bounds_of_partitions)
        starts = {number: bound.log_start for number, bound in enumerate(bounds_of_partitions)}
        requests = [record for record in history.requests if record[2] < ends.requests]
        new_requests = [record for record in requests if last.requests <= record[2]]
        present_requests = [record for record in requests if starts.get(record[1], 0) <= record[2]]
        logged = history.log[last.log : ends.again]
        log = kept(log_rows(self._records(logged), partitions), logged)
        known = read_rows([*state.policies, *policy_rows(log).collect()])
        policies = policy_table(self.spark, known)
        understood = understood_rows(self._records(new_requests), LEVELS_MS_DEFAULT, policies=policies)
        delivered = history.delivered[last.delivered : ends.delivered]
        dead = history.dead_letters[last.dead_letters : ends.dead_letters]
        answered = history.answers[last.answers : ends.answers]
        dead_letters, messages = self._records(dead), delivered_messages(self._records(delivered), [REQUESTS])
        answers = answer_rows(self._records(answered), {VERDICTS: REQUESTS})
        new = Read(
            *(understood, kept(digested_requests(understood), new_requests)),
            *(messages, kept(record_rows(messages), delivered)),
            *(log, kept(dead_letter_rows(dead_letters, {LETTERS: REQUESTS}), dead), kept(answers, answered)),
            requests_of=lambda _: digested_requests(
                understood_rows(self._records(present_requests), LEVELS_MS_DEFAULT, policies=policies)
            ),
        )
        if in_order:
            new = replace(new, overtaken=(overtaken(new.records, fate_rows(new.log), understood),))
        parameters = JudgingParameters(
            *(partitions, small_table(self.spark, _TABLE, TARGETS), "none"),
            *(SNAPSHOT, 60_000),
            left_share_max=1.0,
        )
        digests = ChunkDigests(expected_before_ms(SNAPSHOT, 60_000), self.bits or 0)
        found = advance(
            *(store, state, new, parameters, digests),
            digests.of_requests(understood) if self.bits is not None else None,
        )
        if keep:
            garbled = unreadable_dead_letters(dead_letters, {LETTERS: REQUESTS}).unionByName(
                unreadable_records(new.records)
            )
            opened = write_findings(store, found, new.answers.where("malformed"), garbled, SNAPSHOT)
            next_offsets = {f"{REQUESTS}/{number}": ends.requests for number in range(history.partitions)}
            next_state = replace(found.state, next=next_offsets, targets=["orders"])
            self._committed = store.commit(
                replace(next_state, violations=state.violations + opened),
                {"judged": 0, "lateness_ms": {}, "settings": {}},
            )
            self.last = ends
        return found

    def union(self) -> dict[int, Row]:
        """Returns the last verdict on each origin."""
        rows = last_verdicts(self.spark, self.path).collect()
        rows_by_offset = {row["offset"]: row for row in rows}
        assert len(rows_by_offset) == len(rows)
        return rows_by_offset

    def violations(self) -> list[tuple[int, int, str]]:
        """Returns run, offset and verdict of all violations that the runs have opened."""
        store = StateStore(self.spark, self.path)
        rows = store.known_violations(self._state()).where(f"topic = '{REQUESTS}'").collect()
        return sorted((row["run"], row["offset"], row["verdict"]) for row in rows)

    def standing(self) -> int:
        """Returns the number of violations that nobody has acknowledged."""
        store = StateStore(self.spark, self.path)
        return store.open_violations(self._state())

    def acknowledge(self, run: int) -> None:
        """Closes the violations of a run."""
        acknowledge(self.spark, self.path, run, "Ada", None)

    def _state(self) -> AuditState:
        """Returns the state that the last run of this object has committed; before its first run, the state on disk."""
        return self._committed or StateStore(self.spark, self.path).newest()

    def _records(self, records: list[Record]) -> Any:
        return small_table(self.spark, records, RECORDS)
