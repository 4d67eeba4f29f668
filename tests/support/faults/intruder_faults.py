"""Faults of foreign clients, which use a shard's transactional id, or leave transactions open on important topics."""

from __future__ import annotations

from postdate.wire.headers import AT, TOPIC, Headers
from support.faults.fault import fault
from support.faults.intruding_clients import open_transaction, take_id
from support.faults.rig import PARTITIONS, FaultRig, now_ms


@fault("id taken")
def id_taken(rig: FaultRig) -> str:
    """Takes a shard's transactional id with a foreign producer: the owner is fenced and must take the shard over
    again."""
    for _ in range(count := rig.chance.randint(1, 3)):
        part = rig.chance.randrange(PARTITIONS)
        take_id(rig.deployment.bootstrap, f"postdate/{rig.requests}/{part}")
        rig.wait(rig.chance.uniform(0.0, 1.0))
    return f"{count} times"


@fault("open transaction on requests")
def open_on_requests(rig: FaultRig) -> str:
    """Leaves a transaction open on the request topic: later requests must wait until it ends. Its own request counts
    only if the transaction is committed."""
    commit = rig.chance.random() < 0.5
    target = rig.deployment.targets[0].encode()
    headers: Headers = [(TOPIC, target), (AT, b"%d" % (now_ms() + 500))]
    part, seconds = rig.chance.randrange(PARTITIONS), rig.chance.uniform(2.0, 6.0)
    with open_transaction(rig.deployment.bootstrap, rig.requests, part, b"D of a stranger", headers, commit=commit):
        rig.wait(seconds)
    rig.foreign_requests += commit
    return f"{seconds:.1f} s, {'committed' if commit else 'aborted'}"


@fault("open transaction on the dispatch log")
def open_on_log(rig: FaultRig) -> str:
    """Leaves a transaction open on the dispatch log: takeovers must wait until they can read the records after it."""
    part, seconds = rig.chance.randrange(PARTITIONS), rig.chance.uniform(2.0, 6.0)
    with open_transaction(rig.deployment.bootstrap, f"{rig.requests}.dispatch-log", part, b"never to be seen"):
        for member in rig.base:
            member.kill()
            member.start()
        rig.wait(seconds)
    return f"{seconds:.1f} s, with takeovers of all"


@fault("open transaction on a target")
def open_on_target(rig: FaultRig) -> str:
    """Leaves a transaction open on a target: its readers wait, but deliveries continue."""
    target, seconds = rig.chance.choice(rig.deployment.targets[:2]), rig.chance.uniform(2.0, 6.0)
    with open_transaction(rig.deployment.bootstrap, target, rig.chance.randrange(4), b"never to be seen"):
        rig.wait(seconds)
    return f"{seconds:.1f} s"
