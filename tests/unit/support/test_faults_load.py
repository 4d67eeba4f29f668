"""Goal: the load of the fault rig continues after its client has lost all brokers, and counts the requests that the
client gives up.

Method: a bootstrap address that never responds; the report that librdkafka writes after the loss.
"""

from __future__ import annotations

import socket

from support.faults.load import Load, LoadPlan

_WITHOUT_BROKERS = '{"brokers": {}}'


def test_a_client_without_brokers_is_replaced_and_its_requests_are_counted_as_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        plan = LoadPlan("requests", ("target",), "small", seed=1, per_second=100)
        load = Load(f"127.0.0.1:{silent.getsockname()[1]}", plan)
        for _ in range(20):
            load._send_one()
        lost = load._producer
        load._on_statistics(_WITHOUT_BROKERS)
        load._replace_if_lost()
        assert load._producer is lost, "one report may be a moment"
        load._on_statistics(_WITHOUT_BROKERS)
        load._replace_if_lost()
        assert load._producer is not lost
        assert (load.sent, load.given_up, load.unanswered(), load.clients_lost) == (20, 20, 0, 1)
        load._replace_if_lost()
        assert load.clients_lost == 1, "the new client has not lost anything"
        assert load.failures == []
        load._producer.purge()
        load._producer.flush(5.0)
