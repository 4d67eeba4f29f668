"""Judges of a run: the expected outcome, the invariants of each step, and the situations that it reached."""
