"""The HTTP application: metrics, probes, the API of pending messages, and the page.

Probes run on the event loop and wait for nothing, so they answer even if everything else is busy. Metrics, queries and
changes run on the pool threads of the server. Every answer of the API is JSON; an error is `{"error": "a sentence"}`.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client import ProcessCollector as SystemCollector
from prometheus_client.exposition import CONTENT_TYPE_LATEST, choose_encoder, generate_latest
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import QueryParams
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from postdate.kafka.errors import KafkaFault
from postdate.sidecar.cluster.producing import PartlyProduced
from postdate.sidecar.context.index_queries import Unanswered
from postdate.sidecar.errors import PostdateError
from postdate.sidecar.http import action_log, limits
from postdate.sidecar.http.access.access import Access, Refused
from postdate.sidecar.http.access.signing import is_signed
from postdate.sidecar.http.api import bulk, controls, dead_letters, hold_api, local
from postdate.sidecar.http.api.openapi import describe
from postdate.sidecar.http.api.overview import overview
from postdate.sidecar.http.api.page_files import page_file
from postdate.sidecar.http.api.peers import PeerBook
from postdate.sidecar.http.metrics.collector import ProcessCollector
from postdate.sidecar.http.port import advertised_address
from postdate.sidecar.http.process_state import ProcessState, not_alive, not_ready, remarks
from postdate.sidecar.http.queries import queries
from postdate.sidecar.http.queries.api_client import NotKnown
from postdate.sidecar.http.queries.pending import BadQuery
from postdate.wheel.errors import TimerIndexError

log = logging.getLogger(__name__)

Endpoint = Callable[[Request], Awaitable[Response]]


def make_probes(process: ProcessState) -> Starlette:
    """Returns the application of the probe port."""
    return Starlette(routes=_probes(process))


def make_app(process: ProcessState) -> Starlette:
    """Returns the application of one process."""
    pages = _Pages(process)
    api = pages.api
    return Starlette(
        routes=[
            Route("/", pages.file),
            Route("/page/{name}", pages.file),
            Route("/metrics", pages.metrics),
            *_probes(process),
            Route("/api/v1/openapi.json", pages.openapi),
            Route("/api/v1/pending", api(pages.list_pending)),
            Route("/api/v1/pending/count", api(pages.count_pending)),
            Route("/api/v1/pending/selected", api(pages.count_selected)),
            Route("/api/v1/requests/{origin:path}", api(pages.history)),
            Route("/api/v1/shards", api(pages.shards)),
            Route("/api/v1/actions", api(pages.actions)),
            Route("/api/v1/dead-letters", api(pages.dead_letters)),
            Route("/api/v1/dead-letters/requeue", pages.requeueing, methods=["POST"]),
            Route("/api/v1/hold", pages.holding(hold_api.HOLD), methods=["POST"]),
            Route("/api/v1/release", pages.holding(hold_api.RELEASE), methods=["POST"]),
            Route("/api/v1/drain", pages.draining, methods=["POST"]),
            Route("/api/v1/cancel", pages.change(controls.CANCEL), methods=["POST"]),
            *(
                Route(f"/api/v1/{action}/selected", pages.change_selected(action), methods=["POST"])
                for action in (controls.CANCEL, controls.RESCHEDULE, controls.DELIVER)
            ),
            Route("/api/v1/reschedule", pages.change(controls.RESCHEDULE), methods=["POST"]),
            Route("/api/v1/deliver", pages.change(controls.DELIVER), methods=["POST"]),
            Route("/api/v1/pause", pages.change(controls.PAUSE), methods=["POST"]),
            Route("/api/v1/resume", pages.change(controls.RESUME), methods=["POST"]),
            Route("/api/v1/trigger", pages.change(controls.TRIGGER), methods=["POST"]),
            Route("/api/v1/backfill", pages.change(controls.BACKFILL), methods=["POST"]),
        ]
    )


def _probes(process: ProcessState) -> list[Route]:
    async def healthz(_: Request) -> Response:
        """Answers 200 while the process is alive; otherwise 503 with the reason."""
        why = not_alive(process)
        return PlainTextResponse(f"{why or 'alive'}\n", 503 if why else 200)

    async def readyz(_: Request) -> Response:
        """Answers 200 if the process is ready; otherwise 503 with the reasons, one on each line. The lines of the
        remarks follow in both cases."""
        reasons = not_ready(process)
        lines = [*(reasons or ["ready"]), *(f"note: {remark}" for remark in remarks(process))]
        return PlainTextResponse("".join(f"{line}\n" for line in lines), 503 if reasons else 200)

    return [Route("/healthz", healthz), Route("/readyz", readyz)]


class _Pages:
    def __init__(self, process: ProcessState) -> None:
        self._process = process
        self._access = Access(process.config.http, advertised_address(process.config))
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(ProcessCollector(process))
        SystemCollector(registry=self._registry)
        self._peers = PeerBook(process)

    # ---- for people --------------------------------------------------------------------------------------------------

    async def file(self, request: Request) -> Response:
        """Returns a file of the page, which uses the API like any client."""

        async def answer() -> Response:
            return page_file(request)

        return await self._answer(request, lambda *_: None, answer)

    # ---- for machines ------------------------------------------------------------------------------------------------

    async def metrics(self, request: Request) -> Response:
        """Returns all metrics, in the text format of Prometheus. If the process makes spans, clients that accept
        OpenMetrics get that format, since only OpenMetrics has exemplars."""
        encode: Callable[[CollectorRegistry], bytes] = generate_latest
        media_type = CONTENT_TYPE_LATEST
        if self._process.traces is not None:
            encode, media_type = choose_encoder(request.headers.get("accept", ""))
        text = await run_in_threadpool(encode, self._registry)
        return Response(text, media_type=media_type)

    async def openapi(self, _: Request) -> Response:
        """Returns the OpenAPI description."""
        return JSONResponse(describe())

    # ---- pending messages --------------------------------------------------------------------------------------------

    def list_pending(self, request: Request) -> Response:
        """Returns a page of pending messages."""
        query = self._at_fixed_times(request)
        result = self._own(query, local.page)
        if queries.is_for_deployment(query):
            result = self._peers.merged(request, query, lambda others, unscoped: others.page(unscoped, [result]))
        return JSONResponse(result)

    def count_pending(self, request: Request) -> Response:
        """Returns the number of pending messages."""
        query = self._at_fixed_times(request)
        result = self._own(query, local.count)
        if queries.is_for_deployment(query):
            result = self._peers.merged(request, query, lambda others, unscoped: others.count(unscoped, [result]))
        return JSONResponse(result)

    def count_selected(self, request: Request) -> Response:
        """Returns the pending messages that a bulk control would select now, by shard and target."""
        query = self._at_fixed_times(request)
        result = self._own(query, bulk.count_selected)
        if queries.is_for_deployment(query):
            result = self._peers.merged(request, query, lambda others, unscoped: others.selected(unscoped, [result]))
        return JSONResponse(result)

    def _at_fixed_times(self, request: Request) -> QueryParams:
        return queries.at_fixed_times(request.query_params, self._process.clock.wall_ms())

    def _own(self, query: QueryParams, answer: Callable[[ProcessState, QueryParams], dict[str, Any]]) -> dict[str, Any]:
        """Returns the answer of this process. If the whole deployment is queried and a shard of this process does not
        answer, returns an answer that lists all selected shards of this process in `not_asked`."""
        try:
            return answer(self._process, query)
        except (Unanswered, TimerIndexError) as error:
            if not queries.is_for_deployment(query):
                raise
            return local.silent(self._process, query, str(error))

    def history(self, request: Request) -> Response:
        """Returns the history of one request."""
        query, origin = request.query_params, request.path_params["origin"]
        if not queries.is_for_deployment(query) or local.holds(self._process, origin):
            return JSONResponse(local.history(self._process, query, origin))
        return JSONResponse(
            self._peers.merged(request, query, lambda others, unscoped: others.history(origin, unscoped))
        )

    def shards(self, request: Request) -> Response:
        """Returns the state of every shard."""
        query = request.query_params
        queries.known(query)
        result = overview(self._process, self._peers.own_name)
        if queries.is_for_deployment(query):
            result = self._peers.merged(request, query, lambda others, _: others.overview([result]))
        return JSONResponse(result)

    def dead_letters(self, request: Request) -> Response:
        """Returns the dead letters by reason, and the newest of them."""
        return JSONResponse(dead_letters.list_dead_letters(self._process, self._at_fixed_times(request)))

    def actions(self, request: Request) -> Response:
        """Returns the newest changes that were requested over HTTP."""
        query = self._at_fixed_times(request)
        result = local.actions(self._process, query)
        if queries.is_for_deployment(query):
            result = self._peers.merged(request, query, lambda others, unscoped: others.actions(unscoped, [result]))
        return JSONResponse(result)

    # ---- changes -----------------------------------------------------------------------------------------------------

    def change(self, action: str) -> Endpoint:
        """Returns the endpoint that produces a control."""

        async def changing(request: Request) -> Response:
            return await self._changed(request, lambda: self._change(request, action))

        return changing

    async def _change(self, request: Request, action: str) -> Response:
        body = await _body(request)
        produced = await run_in_threadpool(controls.control, self._process, action, body)
        log.info("%s requested over HTTP: %s", action, produced["origin"])
        return JSONResponse(produced, 202)

    def change_selected(self, action: str) -> Endpoint:
        """Returns the endpoint that produces a bulk control to each selected partition."""

        async def changing(request: Request) -> Response:
            return await self._changed(request, lambda: self._change_selected(request, action))

        return changing

    async def _change_selected(self, request: Request, action: str) -> Response:
        body = await _body(request)
        try:
            produced = await run_in_threadpool(bulk.control_selected, self._process, action, body)
        except PartlyProduced as partly:
            log.warning("%s of many messages requested over HTTP: %s", action, str(partly).replace("\n", "; "))
            raise
        origins = ", ".join(control["origin"] for control in produced["controls"])
        log.warning("%s of many messages requested over HTTP: %s", action, origins)
        return JSONResponse(produced, 202)

    async def requeueing(self, request: Request) -> Response:
        """Requeues dead letters, or only plans the requeue."""

        async def requeue() -> Response:
            body, payload = await _body(request), queries.wants_payload(self._process, request.query_params)
            request.state.is_plan = not (isinstance(body, dict) and body.get("execute") is True)
            result = await run_in_threadpool(dead_letters.requeue, self._process, body, payload)
            if result["executed"]:
                log.warning("requeue requested over HTTP: %d dead letters of %s", result["requeued"], result["topic"])
            return JSONResponse(result)

        return await self._changed(request, requeue)

    def holding(self, action: str) -> Endpoint:
        """Returns the endpoint that holds or releases shards."""

        async def changing(request: Request) -> Response:
            return await self._changed(request, lambda: self._hold(request, action))

        return changing

    async def _hold(self, request: Request, action: str) -> Response:
        body = await _body(request)
        return JSONResponse(await run_in_threadpool(self._held, request, action, body))

    def _held(self, request: Request, action: str, body: object) -> dict[str, Any]:
        result = hold_api.hold(self._process, action, body)
        log.warning("%s requested over HTTP: %s", action, json.dumps(body))
        query = request.query_params
        if not queries.is_for_deployment(query):
            return result
        path, shards = f"/api/v1/{action}", hold_api.shards_query(body)
        return self._peers.merged(request, query, lambda others, _: others.change(path, body, shards, [result]))

    async def draining(self, request: Request) -> Response:
        """Starts to hand all shards over to the other processes."""

        async def drain() -> Response:
            return JSONResponse(await run_in_threadpool(hold_api.drain, self._process), 202)

        return await self._changed(request, drain)

    # ---- rules and errors --------------------------------------------------------------------------------------------

    def api(self, page: Callable[[Request], Response]) -> Endpoint:
        """Returns the endpoint of a query, which runs `page` on a pool thread."""

        async def reading(request: Request) -> Response:
            return await self._answer(request, self._access.may_read, lambda: run_in_threadpool(page, request))

        return reading

    async def _changed(self, request: Request, work: Callable[[], Awaitable[Response]]) -> Response:
        """Returns the answer to a change. Records the change if the client has the right to make it, unless it is only
        a plan."""
        permitted = False

        def permit(request: Request, body: bytes) -> None:
            nonlocal permitted
            self._access.may_change(request, body)
            permitted = True

        response = await self._answer(request, permit, work)
        if permitted and not getattr(request.state, "is_plan", False):
            config, now_ms = self._process.config, self._process.clock.wall_ms()
            keeps_keys = config.http.payloads == "allowed"
            entry = action_log.entry_of(request, response, self._peers.own_name, now_ms, keeps_keys)
            await run_in_threadpool(self._process.actions.record, entry)
        return response

    async def _answer(
        self, request: Request, rule: Callable[[Request, bytes], None], work: Callable[[], Awaitable[Response]]
    ) -> Response:
        try:
            signed = is_signed(request.headers.get("authorization", ""))
            rule(request, await _bytes(request) if signed else b"")
            return await work()
        except Refused as refused:
            headers = {"WWW-Authenticate": "Bearer"} if refused.status == 401 else None
            return JSONResponse({"error": str(refused)}, refused.status, headers)
        except BadQuery as error:
            return JSONResponse({"error": str(error)}, 400)
        except ClientDisconnect:
            return Response(status_code=400)  # the client has gone
        except Unanswered as error:
            return JSONResponse({"error": f"a shard gave {error}; try again"}, 503)
        except TimerIndexError as error:
            return JSONResponse({"error": f"the index of a shard cannot be read now: {error}"}, 503)
        except NotKnown as error:
            return JSONResponse({"error": str(error)}, 404)
        except (KafkaFault, PostdateError) as error:
            return JSONResponse({"error": str(error)}, 502)


async def _bytes(request: Request) -> bytes:
    """Returns the body of a request. Reads the body at the first call, and stores it in the state of the request.
    Raises Refused if the body is too long."""
    body: bytes | None = getattr(request.state, "body", None)
    if body is None:
        body = b""
        async for piece in request.stream():
            body += piece
            if len(body) > limits.HTTP_BODY_BYTES_MAX:
                raise Refused(413, f"the body is longer than {limits.HTTP_BODY_BYTES_MAX} bytes")
        request.state.body = body
    return body


async def _body(request: Request) -> object:
    """Returns the JSON body. Raises Refused if it is too long; BadQuery if it is not JSON, or if it contains a lone
    surrogate, which UTF-8 cannot encode."""
    body = await _bytes(request)
    try:
        parsed: object = json.loads(body)
        json.dumps(parsed, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise BadQuery("the body is not JSON, or has a lone surrogate") from error
    return parsed
