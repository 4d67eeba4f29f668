"""What must have happened in a schedule, which situations it reached, and the invariants of each step."""
