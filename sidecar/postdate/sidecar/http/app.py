"""The HTTP application: metrics, probes, and the API to what is pending.

Probes answer on the event loop and wait for nothing, so that they answer while everything else is busy; the rest runs
on the server's threads. Every answer of the API is JSON; an error is `{"error": "a sentence"}`.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client import ProcessCollector as SystemCollector
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from postdate.connectors.kafka.errors import KafkaFault
from postdate.sidecar.errors import PostdateError
from postdate.sidecar.http import controls, limits, pending, queries
from postdate.sidecar.http.access import Access, Refused
from postdate.sidecar.http.collector import ProcessCollector
from postdate.sidecar.http.lives import life_of
from postdate.sidecar.http.openapi import describe
from postdate.sidecar.http.pending import BadQuery, Filters, Place
from postdate.sidecar.http.process import Process, not_alive, not_ready, remarks
from postdate.sidecar.inquiries import Unanswered
from postdate.sidecar.states import DELIVERING
from postdate.wheel.errors import WheelError

log = logging.getLogger(__name__)

_FILTERS = ("topic", "partition", "target", "from", "until", "state")
Endpoint = Callable[[Request], Awaitable[Response]]


def make_app(process: Process) -> Starlette:
    """The application of one process."""
    pages = _Pages(process)
    api = pages.api
    return Starlette(
        routes=[
            Route("/metrics", pages.metrics),
            Route("/healthz", pages.healthz),
            Route("/readyz", pages.readyz),
            Route("/api/v1/openapi.json", pages.openapi),
            Route("/api/v1/pending", api(pages.list_pending)),
            Route("/api/v1/pending/count", api(pages.count_pending)),
            Route("/api/v1/requests/{origin:path}", api(pages.life)),
            Route("/api/v1/cancel", pages.change(controls.CANCEL), methods=["POST"]),
            Route("/api/v1/reschedule", pages.change(controls.RESCHEDULE), methods=["POST"]),
        ]
    )


class _Pages:
    def __init__(self, process: Process) -> None:
        self._process = process
        self._access = Access(process.config.http)
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(ProcessCollector(process))
        SystemCollector(registry=self._registry)

    # ---- for machines ------------------------------------------------------------------------------------------------

    async def metrics(self, _: Request) -> Response:
        """Everything that is measured, in Prometheus' text format."""
        text = await run_in_threadpool(generate_latest, self._registry)
        return Response(text, media_type=CONTENT_TYPE_LATEST)

    async def healthz(self, _: Request) -> Response:
        """200 while the poll loop turns."""
        why = not_alive(self._process)
        return PlainTextResponse(f"{why or 'alive'}\n", 503 if why else 200)

    async def readyz(self, _: Request) -> Response:
        """200 where the process takes its part; else why not, a sentence a line."""
        reasons = not_ready(self._process)
        lines = [*(reasons or ["ready"]), *(f"note: {remark}" for remark in remarks(self._process))]
        return PlainTextResponse("".join(f"{line}\n" for line in lines), 503 if reasons else 200)

    async def openapi(self, _: Request) -> Response:
        """What the API is, for programs."""
        return JSONResponse(describe())

    # ---- what is pending ---------------------------------------------------------------------------------------------

    def list_pending(self, request: Request) -> Response:
        """A page of what is pending."""
        process, query = self._process, request.query_params
        queries.known(query, *_FILTERS, "id", "origin", "limit", "cursor", "payload")
        payload = queries.wants_payload(process, query)
        able, unable = queries.shards_of(process, query)
        cursor = None
        if "id" in query or "origin" in query:
            found = _named(able, query.get("id"), query.get("origin"))
        else:
            after = Place.decode(query["cursor"]) if "cursor" in query else None
            limit = queries.number_of(query, "limit", limits.PAGE_ENTRIES_DEFAULT, limits.PAGE_ENTRIES_MAX)
            shown = pending.page(list(able), queries.filters_of(query), after, limit, payload)
            found, cursor = shown.entries, shown.cursor
        entries = [pending.as_json(part, key, entry, payload) for key, part, entry in found]
        return JSONResponse({"entries": entries, "cursor": cursor, "not_asked": unable})

    def count_pending(self, request: Request) -> Response:
        """How much is pending."""
        query = request.query_params
        queries.known(query, *_FILTERS)
        able, unable = queries.shards_of(self._process, query)
        filters = queries.filters_of(query)
        if filters == Filters():
            figures = [shard.ask(lambda index: (index.count, index.parked_count)) for shard in able]
            answer: dict[str, Any] = {"count": sum(each[0] for each in figures), "exact": True}
            answer["parked"] = sum(each[1] for each in figures)
        else:
            number, exact = pending.count(list(able), filters)
            answer = {"count": number, "exact": exact}
        shards = [{"topic": shard.part.topic, "partition": shard.part.index} for shard in able]
        return JSONResponse({**answer, "shards": shards, "not_asked": unable})

    def life(self, request: Request) -> Response:
        """What became of one request."""
        process, query = self._process, request.query_params
        queries.known(query, "payload")
        payload = queries.wants_payload(process, query)
        part, offset = queries.origin_of(request.path_params["origin"])
        thread = dict(process.shards()).get(part)
        if thread is None:
            raise Refused(404, f"{part.topic}/{part.index} is not held by this process")
        if thread.shard.state not in DELIVERING:
            raise Refused(503, f"{part.topic}/{part.index} is {thread.shard.state}: it answers nothing now")
        found = life_of(process, queries.HeldShard(part, thread), offset, payload)
        if found is None:
            raise Refused(404, f"nothing is known of a request {request.path_params['origin']}")
        return JSONResponse(found)

    # ---- changes -----------------------------------------------------------------------------------------------------

    def change(self, action: str) -> Endpoint:
        """The endpoint that produces a control."""

        async def changing(request: Request) -> Response:
            return await self._answer(request, self._access.may_change, lambda: self._change(request, action))

        return changing

    async def _change(self, request: Request, action: str) -> Response:
        body = b""
        async for piece in request.stream():
            body += piece
            if len(body) > limits.HTTP_BODY_BYTES_MAX:
                raise Refused(413, f"the body is longer than {limits.HTTP_BODY_BYTES_MAX} bytes")
        try:
            asked = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise BadQuery("the body is not JSON") from error
        told = await run_in_threadpool(controls.control, self._process, action, asked)
        log.info("%s asked over HTTP: %s", action, told["origin"])
        return JSONResponse(told, 202)

    # ---- rules and errors --------------------------------------------------------------------------------------------

    def api(self, page: Callable[[Request], Response]) -> Endpoint:
        """An endpoint that reads."""

        async def reading(request: Request) -> Response:
            return await self._answer(request, self._access.may_read, lambda: run_in_threadpool(page, request))

        return reading

    async def _answer(
        self, request: Request, rule: Callable[[Request], None], work: Callable[[], Awaitable[Response]]
    ) -> Response:
        try:
            self._access.may_reach(request)
            rule(request)
            return await work()
        except Refused as refused:
            headers = {"WWW-Authenticate": "Bearer"} if refused.status == 401 else None
            return JSONResponse({"error": str(refused)}, refused.status, headers)
        except BadQuery as error:
            return JSONResponse({"error": str(error)}, 400)
        except Unanswered as error:
            return JSONResponse({"error": f"a shard gave {error}; try again"}, 503)
        except WheelError as error:
            return JSONResponse({"error": f"the index of a shard cannot be read now: {error}"}, 503)
        except (KafkaFault, PostdateError) as error:
            return JSONResponse({"error": str(error)}, 502)


def _named(shards: Iterable[queries.HeldShard], caller_id: str | None, origin: str | None) -> list[pending.Found]:
    """What is pending under an id, in any of the shards, or as the request of an origin."""
    if caller_id is not None and origin is not None:
        raise BadQuery("give one of id and origin")
    if caller_id is not None:
        looked = ((shard.part, pending.find_id(shard, caller_id.encode())) for shard in shards)
    else:
        part, offset = queries.origin_of(origin or "")
        looked = ((shard.part, pending.find_offset(shard, offset)) for shard in shards if shard.part == part)
    return [(found[0], part, found[1]) for part, found in looked if found is not None]
