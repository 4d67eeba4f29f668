"""The daemon: request rules, the shard state machine, dispatch, configuration and the command line."""
