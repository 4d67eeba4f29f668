"""What of the topics is new since the last audit: ranges cut where that stopped, and what was lost in between."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from postdate.connectors.spark.audit_state import AuditState, place_of
from postdate.connectors.spark.bounds import Range
from postdate.connectors.spark.cluster import Partition
from postdate.connectors.spark.errors import CannotRun
from postdate.connectors.spark.history import Effects

Ranges = dict[Partition, Range]


def since(ranges: Mapping[Partition, Range], state: AuditState) -> tuple[Ranges, Ranges]:
    """The ranges with what was lost *unread*, and the part of each that the last run has not read.

    What left a topic after it was read is not lost. Raises CannotRun where a partition ends before that.
    """
    whole, fresh = {}, {}
    for partition, span in ranges.items():
        place = place_of(partition)
        read, lost_ms = state.next.get(place), state.lost_before_ms.get(place, -1)
        if read is None:
            whole[partition] = fresh[partition] = span
            continue
        if span.end < read:
            raise CannotRun(
                f"{place} ends at {span.end}, though it was read up to {read}: it was cut or made anew. Name a new "
                "--state."
            )
        if span.log_start > read:
            lost_ms = max(lost_ms, span.lost_before_ms)
        whole[partition] = replace(span, lost_before_ms=lost_ms)
        fresh[partition] = replace(whole[partition], start=max(span.start, read))
    return whole, fresh


def since_effects(effects: Effects, state: AuditState) -> tuple[Effects, tuple[Ranges, Ranges, Ranges]]:
    """The same of targets, dead letters and verdicts; the log once more as it is."""
    pairs = [since(ranges, state) for ranges in effects.records()]
    targets, letters, answers = (whole for whole, _ in pairs)
    fresh = (pairs[0][1], pairs[1][1], pairs[2][1])
    return replace(effects, targets=targets, letters=letters, answers=answers), fresh


def by_partition(ranges: Iterable[Range]) -> Ranges:
    """Ranges by their partition."""
    return {span.partition: span for span in ranges}


def without_renewed(state: AuditState, ids: Mapping[str, str], own: Iterable[str]) -> AuditState:
    """The state without what it says of targets that were made anew; their records are read from the beginning.

    `ids` are those that topics have now. Raises CannotRun where a topic of Postdate's own, `own`, was made anew.
    """
    renewed = {topic for topic, id in ids.items() if state.topic_ids.get(topic, id) != id}
    broken = sorted(renewed & set(own))
    if broken:
        raise CannotRun(f"{', '.join(broken)} was made anew since the last audit: name a new --state.")

    def kept(said: Mapping[str, int]) -> dict[str, int]:
        return {place: number for place, number in said.items() if place.rpartition("/")[0] not in renewed}

    return replace(state, next=kept(state.next), lost_before_ms=kept(state.lost_before_ms))
