"""Postdate's clients of Kafka. Of Postdate's modules, only those of this package,
`postdate.tools.dev_broker.readiness` and `postdate.tools.bench.baselines` import confluent_kafka. `readiness` probes a
broker that is starting, and retries after every error of the library. The baselines are the programs with which the
benchmark compares Postdate.

The package imports nothing else of Postdate. Modules and packages in import order; each may import those listed
before it:

    limits, errors     bounds and defaults; the failures of requests, by what the caller does next
    statistics         the measurements of the client library's connections
    interface          all requests to a cluster, with their contract
    classification     maps the library's errors to `errors`
    secrets, settings  the properties of the clients, and those that are refused
    connection_fault   why no broker can be reached
    admin/             queries and changes of topics, offsets and groups
    consumer/          the member of the consumer group; the reader of one partition
    producer           the transactional producer of a shard, and a plain one
    client             creates the clients of one cluster

The rest of the code depends on `interface`, which the simulated cluster of the tests also implements. Start reading
there. Thread rule: see each class of `interface`.
"""
