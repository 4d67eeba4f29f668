"""A fault: its name, and the function that injects it into a scene."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from support.faults.scene import Scene

#: Does a fault to the scene and ends it; returns a few words about what exactly. Where the fault is over before it
#: returns, it says so by `Scene.fault_ends`. The caller repairs the members that it leaves behind.
Deed = Callable[[Scene], str]


@dataclass(frozen=True)
class Fault:
    """One of the faults."""

    name: str
    deed: Deed


FAULTS: dict[str, Fault] = {}


def fault(name: str) -> Callable[[Deed], Deed]:
    """Registers a deed under its name."""

    def register(deed: Deed) -> Deed:
        assert name not in FAULTS, f"two faults are called {name}"
        FAULTS[name] = Fault(name, deed)
        return deed

    return register
