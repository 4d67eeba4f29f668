"""Compares Postdate with other systems that delay messages, RocketMQ and NATS JetStream, in one run on one machine.

`python -m benchmarks.peers` starts the systems one after the other, and applies the same load to each, with the client
programs in `clients/`. The package may import `postdate.tools` and `postdate.kafka`; only tests import it. Each
receiver has a thread.
"""
