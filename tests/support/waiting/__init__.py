"""Checks of time that do not depend on the load of the machine: time-outs, repeated rounds, time net of contention, and
lateness in commits."""
