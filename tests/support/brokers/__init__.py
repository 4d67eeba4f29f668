"""Real brokers for tests: one, three, secured ones, and steps that tests of Kafka have in common."""
