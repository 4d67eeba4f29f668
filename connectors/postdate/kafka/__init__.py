"""Kafka as Postdate sees it: the only package that imports confluent_kafka.

`interface` says what may be asked of a cluster and `errors` what can go wrong; `client` answers over confluent_kafka.
Imports nothing of Postdate but its own modules. Threads: as `interface` says for each class.
"""
