"""The daemon: configuration, request rules, ingest, the shard state machine, takeover, dispatch, and its HTTP port."""
