"""Faults of the network and the broker: cuts in one or both directions, delays, a held request, restarts."""

from __future__ import annotations

from support.faults.fault import fault
from support.faults.proxy import END_TXN
from support.faults.rig import SESSION_S, FaultRig
from support.waiting.timeouts import WAIT_TIMEOUT_S


@fault("held EndTxn")
def held_end(rig: FaultRig) -> str:
    """Breaks the connection at the end of a transaction: the client repeats the request, and the first copy arrives
    later."""
    member = rig.one()
    proxy = rig.proxy_of(member)
    hold = proxy.hold(END_TXN, lose_client=True)
    if not hold.caught.wait(WAIT_TIMEOUT_S):
        rig.wrong.append(f"no transaction of {member.name} ended in {WAIT_TIMEOUT_S:.0f} s")
    rig.wait(seconds := rig.chance.choice((0.05, 0.2, 0.5, 1.0, 3.0)) * rig.chance.uniform(0.5, 1.5))
    proxy.release(hold)
    rig.fault_ends()
    if not hold.answered.wait(WAIT_TIMEOUT_S):
        rig.wrong.append("the late end of a transaction was not answered")
    return f"{seconds:.2f} s late, answered with {hold.error_code}"


@fault("short cut")
def short_cut(rig: FaultRig) -> str:
    """Cuts the connection for less than the session and transaction time-outs."""
    return _cut(rig, rig.chance.uniform(1.0, min(rig.transaction_s - 1, SESSION_S - 2)), True, True)


@fault("long cut")
def long_cut(rig: FaultRig) -> str:
    """Cuts the connection for longer than the transaction time-out, so that the coordinator aborts the transaction. In
    a rig with default settings the cut also exceeds the session time-out."""
    return _cut(rig, rig.transaction_s * rig.chance.uniform(1.1, 1.5), True, True)


@fault("cut one way")
def cut_one_way(rig: FaultRig) -> str:
    """Cuts one direction: the broker receives requests but its responses are lost, or the requests are lost."""
    up = rig.chance.random() < 0.3
    return _cut(rig, rig.chance.uniform(1.0, rig.transaction_s + 3), up, not up)


def _cut(rig: FaultRig, seconds: float, to_broker: bool, to_client: bool) -> str:
    whom = rig.chance.choice([[rig.static], [rig.dynamic], rig.base])
    for member in whom:
        rig.proxy_of(member).cut(to_broker, to_client)
    rig.wait(seconds)
    for member in whom:
        rig.proxy_of(member).heal()
    way = {(True, True): "both ways", (True, False): "requests", (False, True): "answers"}[to_broker, to_client]
    return f"{seconds:.1f} s, {way}, {' and '.join(member.name for member in whom)}"


@fault("slow network")
def slow_network(rig: FaultRig) -> str:
    """Delays each direction by 25 to 250 ms, and stalls some chunks as after a lost packet."""
    share = rig.chance.uniform(0.01, 0.05)
    for member in rig.base:
        rig.proxy_of(member).delay(25, 250, share)
    rig.wait(10.0)
    rig.broker.heal()
    return f"10 s, {share:.1%} stalled"


@fault("connections reset")
def connections_reset(rig: FaultRig) -> str:
    """Resets all connections at once, several times."""
    for _ in range(count := rig.chance.randint(1, 5)):
        rig.proxy_of(rig.one()).drop()
        rig.wait(rig.chance.uniform(0.05, 1.5))
    return f"{count} times"


@fault("broker restarted")
def broker_restarted(rig: FaultRig) -> str:
    """Stops the broker with SIGTERM and restarts it."""
    rig.broker.local.restart()
    return "clean"


@fault("broker killed")
def broker_killed(rig: FaultRig) -> str:
    """Kills the broker with SIGKILL. After a pause it restarts with the data on its disk."""
    rig.broker.local.kill()
    rig.wait(seconds := rig.chance.uniform(0.0, 3.0))
    rig.broker.local.start()
    return f"away for {seconds:.1f} s and its start"


@fault("broker paused")
def broker_paused(rig: FaultRig) -> str:
    """Pauses the broker: connections stay open, but it does not respond, so records time out.

    The pause is shorter than broker.session.timeout.ms. After a longer pause, the controller of a single broker fences
    it, and it sometimes never loads its group coordinator again (Kafka 4.3.1; a restart helps). The proxies simulate
    longer pauses.
    """
    rig.broker.local.pause()
    rig.wait(seconds := rig.chance.uniform(2.0, 4.5))
    rig.broker.local.resume()
    return f"{seconds:.1f} s"
