"""Checks the promise "Order" of docs/protocol.md against the topics: messages of a target leave in the order of their
due times."""

from __future__ import annotations

from support.shards.simulated_shard import ShardEnvironment


def delivered(env: ShardEnvironment, target: str) -> list[tuple[int, int]]:
    """Returns (due time, request offset) of each message of a target, in the order of the topic."""
    found = []
    for record in env.read(target):
        headers = dict(record.headers or [])
        origin = headers["postdate-origin"] or b""
        found.append((int(headers["postdate-due"] or b""), int(origin.rpartition(b"/")[2])))
    return found


def check_order(env: ShardEnvironment, targets: tuple[str, ...]) -> None:
    """Checks that no message left before another message of its target that was known and due earlier.

    A request that arrives late may be due before messages that have left already. So each message is compared only with
    messages whose requests its own transaction knew, by `next_request`.
    """
    known: dict[int, int] = {}  # offset -> next_request of the transaction with which it left
    moved: set[int] = set()
    for record in env.log():
        for fate in record.fates:
            if fate.name == "delivered":
                known[fate.offset] = record.next_request
            elif fate.name == "moved":
                moved.add(fate.offset)
    for target in targets:
        order = delivered(env, target)
        for place, earlier in enumerate(order):
            behind = order[place + 1 :]
            overtaken = [later for later in behind if later < earlier and later[1] < known[earlier[1]]]
            assert [pair for pair in overtaken if pair[1] not in moved] == [], (target, earlier)
