"""Parts of a shard inside the test process: its index, and one shard on a simulated cluster."""
