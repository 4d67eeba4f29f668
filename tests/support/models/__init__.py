"""Models of the protocol, each small enough for a test to explore completely."""
