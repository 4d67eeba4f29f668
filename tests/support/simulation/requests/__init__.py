"""The requests of a schedule, by kind, each with its intended outcome."""
