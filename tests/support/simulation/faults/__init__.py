"""Faults and other events of a schedule, and when each happened."""
