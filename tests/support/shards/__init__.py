"""Parts of a shard in the process of a test: its index, and one shard of a simulated cluster."""
