"""Real brokers for tests: one, three, or secured ones; and steps that tests of Kafka share."""
