"""Judges of a run: they check its outcome, the invariants of each step, and the situations that it reached."""
