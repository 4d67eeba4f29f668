"""A seed for each mutation that the first seeds do not detect. It is tried first, since the search for some mutations
takes dozens of runs.

An entry only saves time. If a mutation has no entry, or a changed simulation has made the entry wrong, the search tries
all seeds. `python -m support.simulation.mutations.known_seeds` searches without this table and prints a new one.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping

#: Mutation -> its seed.
KNOWN_SEEDS: Mapping[str, int] = {
    "no T marks": 4,
    "LSO as the bound, not verified": 6,
    "unknown commit taken as failed": 10,
    "unknown commit taken as done": 29,
    "no recycle": 30,
    "dispatch before recovery": 4,
    "wheel believed without its checks": 8,
    "cancel answered before its commit": 5,
    "rule 1: one entry too many": 8,
    "rule 4: messages beside what acts on them": 5,
    "rule 2: decided early": 2,
    "rule 4: messages first": 24,
    "rates: what waits is overtaken": 7,
    "rule 3: moves undone": 77,
    "rule 5: marks overwritten": 2,
    "rule 5: no mark for stored": 7,
    "rule 5: no mark for moved": 2,
    "rule 5: marked as stored, taken for ended": 7,
    "gate always open": 11,
    "moved, not stored anew": 2,
    "all of STORE is taken": 7,
    "half a rebuild is gone on with": 77,
    "an id freed for another": 18,
    "a mark does not say who ended its request": 12,
    "holds not recalled": 7,
    "an even choice behind the window": 8,
    "an even choice moves an entry without its place": 2,
    "bulk: only the sweep ends messages": 7,
    "bulk: messages leave before it is read": 77,
    "bulk: later controls act on what it selects": 68,
    "bulk: each owner counts from zero": 30,
    "bulk: parked messages are left out": 10,
    "bulk: a schedule outlives it": 32,
    "bulk: moved messages are selected again": 2,
    "bulk: the next owner moves messages again": 46,
    "bulk: marks do not name what has moved": 30,
    "bulk: moves of others are not replayed": 30,
    "kept by a message that has ended": 112,
    "the start of a series is not marked": 4,
    "the start of a series is not stored": 25,
    "each request begins a series": 2,
    "delivered ids are forgotten": 2,
    "ids are remembered for ever": 2,
    "a stored message is not remembered": 22,
    "partitions by no key": 2,
    "a transaction in the opposite order": 7,
    "a message that is stored late is overtaken": 20,
    "fates found under their writer's due time": 29,
    "controls act on what follows": 42,
    "the attempt is not raised": 2,
    "the newest policy of a name counts": 13,
    "policies are not replayed": 39,
    "an abort leaves no suspicion": 5,
    "bound of the recovery not verified": 18,
    "halts not confirmed": 74,
    "a stall halts": 4,
    "an expired log is trusted": 4,
    "an expired log is not trusted": 2,
    "slow is unavailable": 4,
    "first due times forgotten": 12,
    "a missing target is not waited for": 5,
    "half the grace": 76,
    "parked messages are overtaken": 16,
    "retry budget not from the due time": 21,
    "schedules: STORE is not rewritten": 11,
    "schedules: marks without the number": 74,
    "schedules: occurrences are not replayed": 24,
    "schedules: skips are not recorded": 2,
    "pauses: marks without them": 53,
    "pauses: STORE without them": 3,
    "pauses: skipped when their time comes": 4,
    "pauses: delivered behind the resume": 2,
    "triggers: not recorded": 2,
    "triggers: marks without them": 55,
    "triggers: STORE without them": 6,
    "triggers: extra deliveries are not replayed": 74,
    "triggers: completed before they have left": 2,
    "backfills: not recorded": 4,
    "backfills: marks without them": 55,
    "backfills: only one delivery is replayed": 55,
    "backfills: the last time is left out": 9,
}


def _print_table() -> None:
    from support.simulation import many
    from support.simulation.mutations import mutation

    with many.workers() as pool:
        searches = {name: pool.submit(many.search, name, range(1, 1_001)) for name in mutation.MUTATIONS}
        for name, search in searches.items():
            result = search.result()
            if result is None or result.seed > 1:
                sys.stdout.write(f'    "{name}": {result.seed if result else "?"},\n')


if __name__ == "__main__":
    _print_table()
