"""The registry of faults: each has a name, and a function that injects it into a rig."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from support.faults.rig import FaultRig

#: Injects a fault into the rig and ends it; returns a short description. A function that returns some time after the
#: end of the fault calls `FaultRig.fault_ends` at the end. The caller restarts the members that the fault has stopped.
Inject = Callable[[FaultRig], str]


@dataclass(frozen=True)
class Fault:
    """A registered fault."""

    name: str
    inject: Inject


FAULTS: dict[str, Fault] = {}


def fault(name: str) -> Callable[[Inject], Inject]:
    """Registers a function as the fault of this name."""

    def register(inject: Inject) -> Inject:
        assert name not in FAULTS, f"two faults are called {name}"
        FAULTS[name] = Fault(name, inject)
        return inject

    return register
