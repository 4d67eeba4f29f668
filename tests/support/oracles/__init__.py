"""The expected records, and checks of exactly-once delivery and order. They share only decoders with the sidecar."""
