"""The other processes of the deployment, as the consumer group lists them, for queries of the whole deployment.

Each member with a port advertises its HTTP address in its client id, and Kafka lists the members, so no configuration
is needed. The list is at most PEERS_AGE_S old, or older while Kafka does not answer.

Thread rule: any thread of the HTTP server; a lock guards the list.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from starlette.datastructures import QueryParams
from starlette.requests import Request

from postdate.kafka.errors import KafkaFault
from postdate.kafka.interface import Admin, GroupMember, Partition
from postdate.sidecar.http.access.access import Refused
from postdate.sidecar.http.action_log import labels_of
from postdate.sidecar.http.limits import MERGE_WAIT_S, MERGED_AT_ONCE_MAX, PEERS_AGE_S
from postdate.sidecar.http.port import advertised_address
from postdate.sidecar.http.process_state import ProcessState
from postdate.sidecar.http.queries.api_client import Query
from postdate.sidecar.http.queries.deployment import SCOPE, Deployment, peers_of

DeploymentQuery = Callable[[Deployment, Query], dict[str, Any]]


class PeerBook:
    """The list of the other processes, and a bound on concurrent merged queries."""

    def __init__(self, process: ProcessState) -> None:
        self._process = process
        self._own_address = advertised_address(process.config)
        self.own_name = self._own_address or process.config.instance_name
        """The name of this process in answers."""
        self._lock = threading.Lock()
        self._members: list[GroupMember] = []
        self._expected: frozenset[Partition] = frozenset()
        self._known_until = -1.0
        self._query_slots = threading.BoundedSemaphore(MERGED_AT_ONCE_MAX)

    def merged(self, request: Request, params: QueryParams, run_query: DeploymentQuery) -> dict[str, Any]:
        """Returns the result of `run_query` for the other processes and the query `params` without the scope. Raises
        Refused if too many such queries run, KafkaFault as `others` does, and the errors of `run_query`."""
        if not self._query_slots.acquire(timeout=MERGE_WAIT_S):
            raise Refused(503, f"{MERGED_AT_ONCE_MAX} queries of the whole deployment are in progress; try again")
        try:
            query = [(name, value) for name, value in params.multi_items() if name != SCOPE]
            return run_query(self.others(_token(request), labels_of(request)), query)
        finally:
            self._query_slots.release()

    def others(self, token: str, labels: Mapping[str, str]) -> Deployment:
        """Returns the other processes, for queries with the token and the labels of the client. Raises KafkaFault if
        Kafka has never listed them."""
        self._learn()
        http = self._process.config.http
        return Deployment(peers_of(self._members, token, http, self._own_address, labels), self._expected)

    def _learn(self) -> None:
        with self._lock:
            if time.monotonic() < self._known_until:
                return
            process = self._process
            try:
                self._members, self._expected = read_group(
                    process.admin, process.config.group_id, process.config.request_topic_names
                )
            except KafkaFault:
                if self._known_until < 0:
                    raise
            self._known_until = time.monotonic() + PEERS_AGE_S


def read_group(
    admin: Admin, group_id: str, topics: tuple[str, ...] = ()
) -> tuple[list[GroupMember], frozenset[Partition]]:
    """Returns the members of a group, and all partitions of `topics` and of the topics that the members read. Takes at
    most two requests to Kafka. Raises KafkaFault."""
    members = admin.group_members(group_id)
    named = {*topics, *(part.topic for member in members for part in member.partitions)}
    described = admin.describe(sorted(named)) if named else {}
    return members, frozenset(Partition(name, index) for name, info in described.items() for index in info.partitions)


def _token(request: Request) -> str:
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""
