"""Postdate's clients of Kafka: the only package that imports confluent_kafka.

`interface` defines the requests to a cluster, `errors` the failures, and `client` implements them over confluent_kafka.
The package imports nothing else of Postdate. Thread rule: see each class of `interface`.
"""
