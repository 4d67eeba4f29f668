"""A real single-node Kafka on this machine, for development, tests and the demo; no Docker needed.

The package owns the processes and containers of the brokers that it starts, their directories, and the cache of Kafka's
jars. `jars` fetches the jars once, `java` finds a Java, `properties` has the settings of a node, `local_broker` runs
the node as a child process, `docker` runs it as a container instead, `class_archive` makes later starts faster,
`readiness` waits for a transaction to succeed, and `uninterrupted` defers signals while a process starts.

Imports `postdate.kafka`, and none of the other tools.
Thread rule: any thread, one caller of a broker at a time. Signals are deferred only in the main thread.
"""

from postdate.tools.dev_broker.local_broker import LocalBroker

__all__ = ["LocalBroker"]
