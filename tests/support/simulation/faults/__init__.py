"""Injects the faults and other events of a run, and records when they happened."""
