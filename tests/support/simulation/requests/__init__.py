"""The requests of a run by kind, each with its intended outcome."""
