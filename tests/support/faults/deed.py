"""The registry of faults: each has a name, and a function that injects it into a scene."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from support.faults.scene import Scene

#: Injects a fault into the scene and ends it; returns a short description. If the fault ends before the function
#: returns, the function calls `Scene.fault_ends`. The caller restores the members that the fault has stopped.
Deed = Callable[[Scene], str]


@dataclass(frozen=True)
class Fault:
    """A registered fault."""

    name: str
    deed: Deed


FAULTS: dict[str, Fault] = {}


def fault(name: str) -> Callable[[Deed], Deed]:
    """Registers a function as the fault of this name."""

    def register(deed: Deed) -> Deed:
        assert name not in FAULTS, f"two faults are called {name}"
        FAULTS[name] = Fault(name, deed)
        return deed

    return register
