"""Postdate beside other systems that deliver messages later: RocketMQ and NATS JetStream, in one run on one machine.

`python -m benchmarks.peers` starts each system, one after the other, and applies the same load to it by client programs
(`clients/`). It may import `postdate.tools` and `postdate.kafka`; only tests import it. Each receiver has a thread.
"""
