"""A real single-node Kafka on this machine, for development, tests and the demo; no Docker needed.

`jars` fetches Apache Kafka's own jars once, `java` finds a Java, `local` runs the broker as a child process, `docker`
runs the image instead, `readiness` waits for a transaction to succeed.
"""

from postdate.tools.dev_broker.local_broker import LocalBroker

__all__ = ["LocalBroker"]
