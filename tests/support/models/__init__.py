"""Models of the protocol, each small enough to be explored completely by a test."""
