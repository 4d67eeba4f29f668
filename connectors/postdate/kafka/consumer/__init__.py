"""Reading from Kafka: the member of the consumer group, and the reader of one partition.

    records           converts the library's messages to records of the interface: the hot path of reading
    log_reader        `interface.LogReader` over confluent_kafka
    group_consumer    `interface.GroupConsumer` over confluent_kafka

Imports `admin` and the flat modules before it. Thread rule: a client belongs to one thread; `GroupConsumer.confirm` may
be called from any thread.
"""
