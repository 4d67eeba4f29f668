"""Injects the faults and other events of a schedule, and records when they happened."""
