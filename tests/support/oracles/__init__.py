"""What must have happened: the expected records, exactly once, and order, computed without the sidecar's code."""
