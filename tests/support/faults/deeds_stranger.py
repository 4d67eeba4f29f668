"""Faults of foreign clients: one uses a shard's transactional id, others leave transactions open on important
topics."""

from __future__ import annotations

from postdate.wire.headers import AT, TOPIC, Headers
from support.faults.deed import fault
from support.faults.scene import PARTITIONS, Scene, now_ms
from support.faults.strangers import open_transaction, take_id


@fault("id taken")
def id_taken(scene: Scene) -> str:
    """A producer uses the transactional id of a shard: the owner is fenced and must take the shard back."""
    for _ in range(count := scene.chance.randint(1, 3)):
        part = scene.chance.randrange(PARTITIONS)
        take_id(scene.bed.bootstrap, f"postdate/{scene.requests}/{part}")
        scene.wait(scene.chance.uniform(0.0, 1.0))
    return f"{count} times"


@fault("open transaction on requests")
def open_on_requests(scene: Scene) -> str:
    """Requests after it wait until the transaction ends. Its own request counts only if it is committed."""
    commit = scene.chance.random() < 0.5
    target = scene.bed.targets[0].encode()
    headers: Headers = [(TOPIC, target), (AT, b"%d" % (now_ms() + 500))]
    part, seconds = scene.chance.randrange(PARTITIONS), scene.chance.uniform(2.0, 6.0)
    with open_transaction(scene.bed.bootstrap, scene.requests, part, b"D of a stranger", headers, commit=commit):
        scene.wait(seconds)
    scene.strangers += commit
    return f"{seconds:.1f} s, {'committed' if commit else 'aborted'}"


@fault("open transaction on the dispatch log")
def open_on_log(scene: Scene) -> str:
    """Takeovers during the transaction must wait for the records after it."""
    part, seconds = scene.chance.randrange(PARTITIONS), scene.chance.uniform(2.0, 6.0)
    with open_transaction(scene.bed.bootstrap, f"{scene.requests}.dispatch-log", part, b"never to be seen"):
        for member in scene.base:
            member.kill()
            member.start()
        scene.wait(seconds)
    return f"{seconds:.1f} s, with takeovers of all"


@fault("open transaction on a target")
def open_on_target(scene: Scene) -> str:
    """Readers of the target wait; deliveries do not."""
    target, seconds = scene.chance.choice(scene.bed.targets[:2]), scene.chance.uniform(2.0, 6.0)
    with open_transaction(scene.bed.bootstrap, target, scene.chance.randrange(4), b"never to be seen"):
        scene.wait(seconds)
    return f"{seconds:.1f} s"
