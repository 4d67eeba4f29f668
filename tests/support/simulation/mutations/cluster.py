"""Mutations: safeguards against faults of the cluster.

They patch the simulated client, so they do not depend on the code that calls it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from unittest.mock import patch

from support.kafka_simulator.producer import SimTransactionalProducer
from support.simulation.runtime.simulated_run import SimulatedRun
from support.simulation.themes import ENDS, STAMPS


def _abort_settles(_: SimulatedRun) -> AbstractContextManager[object]:
    """After an abort the producer is always used again: a late commit then ends the next transaction."""
    honest = SimTransactionalProducer.abort

    def abort(self: SimTransactionalProducer) -> None:
        honest(self)
        self._transport_failed, self._end_took_ms = False, 0.0

    return patch.object(SimTransactionalProducer, "abort", abort)


def _local_stamps(_: SimulatedRun) -> AbstractContextManager[object]:
    """Delivered records are stamped by the wall clock of the machine, not by the estimate of the broker's clock."""
    honest = SimTransactionalProducer.begin

    def begin(self: SimTransactionalProducer, created_ms: int = 0) -> None:
        honest(self)

    return patch.object(SimTransactionalProducer, "begin", begin)


CLUSTER_MUTATIONS: dict[str, tuple[Callable[[SimulatedRun], AbstractContextManager[object]], str]] = {
    "an abort leaves no suspicion": (_abort_settles, ENDS),
    "records are stamped by the machine": (_local_stamps, STAMPS),
}
