"""The OpenAPI 3.1 description of the API, which the application serves. A test compares it with the routes.

Thread rule: pure.
"""

from __future__ import annotations

from typing import Any

from postdate.sidecar.http import limits

_TEXT = {"type": "string"}
_NUMBER = {"type": "integer"}
_MS = {"type": "integer", "description": "epoch milliseconds"}


def _maybe(schema: dict[str, Any]) -> dict[str, Any]:
    return {**schema, "type": [schema["type"], "null"]}


_ENTRY = {
    "type": "object",
    "properties": {
        "origin": {**_TEXT, "description": "request topic/partition/offset: the permanent name of the request"},
        "state": {**_TEXT, "enum": ["waiting", "parked", "ending"]},
        "target": _TEXT,
        "due_ms": _MS,
        "first_due_ms": {**_MS, "description": "before any reschedule"},
        "accepted_ms": _maybe(_MS),
        "id": _maybe(_TEXT),
        "partition": {**_maybe(_NUMBER), "description": "partition of the target, if the request names one"},
        "grace_ms": _maybe(_NUMBER),
        "stored": {"type": "boolean", "description": "the store topic has a copy"},
        "window_ms": {**_NUMBER, "description": "length of its window; only if it has one"},
        "chosen_ms": {
            **_maybe(_MS),
            "description": "when it leaves; only with a window, or for a recurring schedule; null while that is paused",
        },
        "paused": {"type": "boolean", "description": "it leaves only after a resume; only of a recurring schedule"},
        "extras": {
            "type": "array",
            "items": {"type": "object", "properties": {"by": _TEXT, "number": _NUMBER, "due_ms": _MS, "end_ms": _MS}},
            "description": "for each trigger and backfill with pending deliveries: its origin, number and nominal time "
            "of the next one, and the last possible time; only of a recurring schedule",
        },
        "occurrence": {**_NUMBER, "description": "the number of the next occurrence; only of a recurring schedule"},
        "spread": {**_TEXT, "enum": ["drawn", "even"], "description": "how that time is chosen; only with a window"},
        "series_ms": {**_MS, "description": "when the first request of its series came; only of a debounced message"},
        "schedule": {"type": "object", "description": "its headers without the prefix; only of a recurring schedule"},
        "words": {**_TEXT, "description": "when it occurs, in English; only of a recurring schedule"},
        "next_ms": {
            "type": "array",
            "items": _MS,
            "description": "at most ten nominal times, from `occurrence` on, or from now on if the schedule is paused; "
            "only of a recurring schedule",
        },
        "attempt": {**_maybe(_NUMBER), "description": "the number of the retry, if the request is a return"},
        "payload": {
            "type": "object",
            "description": "key, value and headers as base64; only if http.payloads is `allowed`",
        },
    },
}
_EVENTS = (
    "its fates, oldest first; all `extra`, and all `extra-dead`, by the same control are one, in the place of the "
    "first, with the number and the times of the last one, and how many were found in `deliveries`"
)
_NOT_ASKED = {
    "type": "array",
    "description": "shards that did not answer, with the reason",
    "items": {
        "type": "object",
        "properties": {"topic": _TEXT, "partition": _NUMBER, "state": _TEXT, "why": _TEXT},
    },
}
_PAGE = {
    "type": "object",
    "properties": {
        "entries": {"type": "array", "items": {"$ref": "#/components/schemas/Entry"}},
        "cursor": {**_maybe(_TEXT), "description": "cursor of the next page; null after the last page"},
        "shards": {"type": "array", "items": {"type": "object"}, "description": "the shards that answered"},
        "not_asked": _NOT_ASKED,
    },
}
_COUNT = {
    "type": "object",
    "properties": {
        "count": {**_NUMBER, "description": "the sum over the shards that answered"},
        "exact": {
            "type": "boolean",
            "description": "false: the real number may be higher, since a shard reached the limit of a count or has "
            "not read all requests since its takeover",
        },
        "parked": {**_NUMBER, "description": "how many of them are parked; only in a count without `state`"},
        "shards": {"type": "array", "items": {"type": "object"}, "description": "the count of each shard"},
        "not_asked": _NOT_ASKED,
    },
}
_SELECTED = {
    "type": "object",
    "properties": {
        "count": {**_NUMBER, "description": "the sum over the shards that answered"},
        "exact": {"type": "boolean", "description": "false: a shard was not visited to its end, or is catching up"},
        "targets": {"type": "object", "description": "the number of messages for each target"},
        "shards": {"type": "array", "items": {"type": "object"}, "description": "count and targets of each shard"},
        "not_asked": _NOT_ASKED,
    },
}
_CONTROLS = {
    "type": "object",
    "properties": {
        "action": _TEXT,
        "controls": {
            "type": "array",
            "items": {"type": "object", "properties": {"origin": _TEXT, "accepted_ms": _MS}},
            "description": "one control for each partition; its verdict `applied` has the count",
        },
    },
}
_HISTORY = {
    "type": "object",
    "properties": {
        "origin": _TEXT,
        "state": {
            **_TEXT,
            "description": "waiting, parked, ending, sweeping (a bulk control), unread, ended, or the final fate",
        },
        "request": {"type": ["object", "null"], "description": "null: retention has deleted the record"},
        "entry": {"anyOf": [{"$ref": "#/components/schemas/Entry"}, {"type": "null"}]},
        "events": {"type": "array", "items": {"type": "object"}, "description": _EVENTS},
        "complete": {"type": "boolean", "description": "false: the search of the dispatch log reached its limit"},
    },
}
_SHARDS = {
    "type": "object",
    "properties": {
        "at_ms": _MS,
        "shards": {
            "type": "array",
            "items": {"type": "object"},
            "description": "state and reason, holds, pending messages, upcoming load, past lateness",
        },
        "not_asked": _NOT_ASKED,
    },
}
_HELD = {
    "type": "object",
    "properties": {
        "shards": {"type": "array", "items": {"type": "object"}, "description": "the holds of each shard"},
        "not_asked": {**_NOT_ASKED, "description": "shards that were not changed, with the reason"},
    },
}
_DRAINING = {"type": "object", "properties": {"instance": _TEXT, "draining": {"type": "array"}}}
_CONTROL = {
    "type": "object",
    "properties": {"origin": _TEXT, "action": _TEXT, "accepted_ms": _MS},
    "description": "the produced control request; its verdict is the outcome",
}
_ACTION = {
    "type": "object",
    "properties": {
        "at_ms": _MS,
        "action_id": _TEXT,
        "process": {**_TEXT, "description": "the process that received it"},
        "forwarded": {"type": "boolean", "description": "it was requested for the shards of this process only"},
        "who": {**_maybe(_TEXT), "description": "the header Postdate-Actor: a name that the client gives, no proof"},
        "address": _maybe(_TEXT),
        "action": {**_TEXT, "description": "the path behind /api/v1/"},
        "asked": {"type": "object", "description": "the body; a key is recorded only if http.payloads is `allowed`"},
        "status": _NUMBER,
        "answer": {"type": "object", "description": "its fields, or the error; of a list the length"},
    },
}
_ACTIONS = {
    "type": "object",
    "properties": {
        "actions": {"type": "array", "items": _ACTION},
        "not_asked": {"type": "array", "items": {"type": "object"}, "description": "processes that did not answer"},
    },
}
_OLDER = "there are older ones, which were not read; an earlier `until` reaches them"
_DEAD_LETTERS = {
    "type": "object",
    "properties": {
        "topic": _TEXT,
        "groups": {"type": "array", "items": {"type": "object"}, "description": "count, times and targets by reason"},
        "letters": {
            "type": "array",
            "items": {"type": "object"},
            "description": "the newest dead letters, newest first",
        },
        "complete": {"type": "boolean", "description": f"false: {_OLDER}"},
    },
}
_REQUEUED = {
    "type": "object",
    "properties": {
        "topic": _TEXT,
        "executed": {"type": "boolean"},
        "requeued": {**_NUMBER, "description": "the dead letters that were requeued, or would be"},
        "requeued_before": _NUMBER,
        "impossible": _NUMBER,
        "with_id": {**_NUMBER, "description": "requeued ones with an id, which replace pending messages of that id"},
        "missing_targets": {"type": "array", "items": _TEXT},
        "outcomes": {"type": "array", "items": {"type": "object"}, "description": "each one, with its new origin"},
        "complete": {"type": "boolean", "description": "false: has_more or older_unread is true"},
        "has_more": {"type": "boolean", "description": "true: others match, so repeat it"},
        "older_unread": {"type": "boolean", "description": f"true: {_OLDER}"},
    },
}
_ERROR = {"type": "object", "properties": {"error": _TEXT}}


_SCHEMAS = {
    "Entry": _ENTRY,
    "Page": _PAGE,
    "Count": _COUNT,
    "Selected": _SELECTED,
    "Controls": _CONTROLS,
    "Life": _HISTORY,
    "Control": _CONTROL,
    "Shards": _SHARDS,
    "Held": _HELD,
    "Draining": _DRAINING,
    "Actions": _ACTIONS,
    "DeadLetters": _DEAD_LETTERS,
    "Requeued": _REQUEUED,
    "Error": _ERROR,
}


def _query(name: str, schema: dict[str, Any], text: str) -> dict[str, Any]:
    return {"name": name, "in": "query", "required": False, "schema": schema, "description": text}


_SCOPE = _query(
    "scope",
    {**_TEXT, "enum": ["deployment", "process"], "default": "deployment"},
    "deployment: query all processes; process: only the shards of this process",
)
_TIME = "RFC 3339, epoch milliseconds, now, 10s (from now) or -2h (ago)"
_STATE = {**_TEXT, "enum": ["waiting", "parked"]}
_STATE_TEXT = "parked: the target fails, is held, or is over its rate"
_FILTERS = [
    _query("topic", _TEXT, "request topic"),
    _query("partition", _NUMBER, "partition of the request topic"),
    _query("target", {"type": "array", "items": _TEXT}, "target topic; repeatable"),
    _query("from", _TEXT, f"due at or after: {_TIME}"),
    _query("until", _TEXT, f"due before, including entries that are due already: {_TIME}"),
    _query("recurring", {"type": "boolean", "default": False}, "only recurring schedules"),
    _query("id_prefix", _TEXT, "only ids that begin with this text"),
    _query("key", _TEXT, "only messages with this key"),
    _SCOPE,
]
_SELECTORS = {
    "target": {**_TEXT, "description": "target topic"},
    "id_prefix": {**_TEXT, "description": "ids that begin with this text"},
    "key": {**_TEXT, "description": "key of the message"},
    "from": {**_TEXT, "description": f"due at or after: {_TIME}"},
    "until": {**_TEXT, "description": f"due before: {_TIME}"},
}
_MOVE = {
    "by": {**_TEXT, "description": "move each message by this time: 2h or -30m; or one time for all:"},
    "at": {**_TEXT, "description": _TIME},
    "delay": {**_TEXT, "description": "from now: 90s, 2h30m, PT5M"},
}
_DEAD_LETTER_FILTERS = {
    "reason": {**_TEXT, "description": "only with this reason"},
    "target": {**_TEXT, "description": "only for this target"},
    "from": {**_TEXT, "description": f"written at or after: {_TIME}"},
    "until": {**_TEXT, "description": f"written before: {_TIME}"},
}
_PAYLOAD = _query("payload", {"type": "boolean", "default": False}, "show key, headers and value as base64")


def _answers(name: str, status: str = "200") -> dict[str, Any]:
    """Returns the responses of a path: success with the schema `name`, and the errors that every path may have."""
    good = {"$ref": f"#/components/schemas/{name}"}
    bad = {"$ref": "#/components/schemas/Error"}
    texts = {
        "400": "invalid request",
        "401": "the token is missing or wrong",
        "403": "no token is configured",
        "502": "Kafka does not answer",
        "503": "a shard is busy",
    }
    return {
        status: {"description": "success", "content": {"application/json": {"schema": good}}},
        **{
            code: {"description": text, "content": {"application/json": {"schema": bad}}}
            for code, text in texts.items()
        },
    }


def _change(summary: str, fields: dict[str, Any]) -> dict[str, Any]:
    named = {
        "origin": {**_TEXT, "description": "origin of the message; or"},
        "id": {**_TEXT, "description": "id of the message"},
        "topic": {**_TEXT, "description": "request topic of the id, if the process serves several"},
    }
    schema = {"type": "object", "additionalProperties": False, "properties": {**named, **fields}}
    return {
        "post": {
            "summary": summary,
            "security": [{"token": []}],
            "requestBody": {"required": True, "content": {"application/json": {"schema": schema}}},
            "responses": _answers("Control", "202"),
        }
    }


def _selecting() -> dict[str, Any]:
    selectors = (_query(name, {"type": "string"}, field["description"]) for name, field in _SELECTORS.items())
    return {
        "get": {
            "summary": "Number of pending messages that a bulk control would select, by shard and target",
            "parameters": [*_FILTERS[:2], *selectors, _SCOPE],
            "responses": _answers("Selected"),
        }
    }


def _changing_selected(summary: str, more: dict[str, Any]) -> dict[str, Any]:
    fields = {
        "topic": {**_TEXT, "description": "request topic, if the process serves several"},
        "partitions": {
            "type": "array",
            "items": _NUMBER,
            "description": "partitions of the request topic; default: all",
        },
        **_SELECTORS,
        **more,
    }
    schema = {"type": "object", "additionalProperties": False, "properties": fields}
    return {
        "post": {
            "summary": f"{summary} all messages that match every given selector",
            "security": [{"token": []}],
            "requestBody": {"required": True, "content": {"application/json": {"schema": schema}}},
            "responses": _answers("Controls", "202"),
        }
    }


def _holding(summary: str) -> dict[str, Any]:
    fields = {
        "what": {**_TEXT, "enum": ["delivery", "intake", "target"]},
        "target": {**_TEXT, "description": "target topic, with what=target"},
        "topic": {**_TEXT, "description": "request topic; default: all"},
        "partition": {**_NUMBER, "description": "partition of that request topic; default: all"},
    }
    schema = {"type": "object", "additionalProperties": False, "required": ["what"], "properties": fields}
    return {
        "post": {
            "summary": summary,
            "security": [{"token": []}],
            "parameters": [_SCOPE],
            "requestBody": {"required": True, "content": {"application/json": {"schema": schema}}},
            "responses": _answers("Held"),
        }
    }


def _actions() -> dict[str, Any]:
    limit = {"type": "integer", "minimum": 1, "maximum": limits.PAGE_ENTRIES_MAX}
    parameters = [
        _query("from", _TEXT, f"requested at or after: {_TIME}"),
        _query("until", _TEXT, f"requested before: {_TIME}"),
        _query("limit", {**limit, "default": limits.PAGE_ENTRIES_DEFAULT}, "most actions of the answer"),
        _query("payload", {"type": "boolean", "default": False}, "show keys that selected messages"),
        _SCOPE,
    ]
    return {
        "summary": "Changes over HTTP, the newest first",
        "parameters": parameters,
        "responses": _answers("Actions"),
    }


def _letters() -> dict[str, Any]:
    limit = {"type": "integer", "minimum": 1, "maximum": limits.PAGE_ENTRIES_MAX}
    parameters = [
        _query("topic", _TEXT, "request topic, if the process serves several"),
        *(_query(name, schema, schema["description"]) for name, schema in _DEAD_LETTER_FILTERS.items()),
        _query("limit", {**limit, "default": limits.PAGE_ENTRIES_DEFAULT}, "most dead letters of the answer"),
        _PAYLOAD,
    ]
    return {"summary": "Dead letters by reason", "parameters": parameters, "responses": _answers("DeadLetters")}


def _requeueing() -> dict[str, Any]:
    fields = {
        "topic": {**_TEXT, "description": "request topic, if the process serves several"},
        **_DEAD_LETTER_FILTERS,
        "origins": {"type": "array", "items": _TEXT, "description": "the requests of the dead letters"},
        "at": {**_TEXT, "description": f"a new time for all: {_TIME}; or"},
        "delay": {**_TEXT, "description": "from now: 90s, 2h30m, PT5M; default: the times that they have"},
        "execute": {"type": "boolean", "default": False, "description": "false: only plan it"},
    }
    schema = {"type": "object", "additionalProperties": False, "properties": fields}
    return {
        "post": {
            "summary": "Schedule dead letters again, as new requests",
            "security": [{"token": []}],
            "parameters": [_PAYLOAD],
            "requestBody": {"required": True, "content": {"application/json": {"schema": schema}}},
            "responses": _answers("Requeued"),
        }
    }


def _plain(summary: str) -> dict[str, Any]:
    content = {"description": "yes", "content": {"text/plain": {"schema": _TEXT}}}
    return {
        "get": {
            "summary": summary,
            "responses": {"200": content, "503": {**content, "description": "no, with the reasons"}},
        }
    }


_OF_SCHEDULES = {
    "pause": "Pause a recurring schedule",
    "resume": "Resume a recurring schedule",
    "trigger": "Deliver a recurring schedule once more, now",
}


_RANGE = {
    "start": {**_TEXT, "description": f"the first possible nominal time: {_TIME}"},
    "end": {**_TEXT, "description": "the last possible one, which has passed"},
}


def _queries() -> dict[str, Any]:
    """Returns the descriptions of the paths of queries."""
    limit = {"type": "integer", "minimum": 1, "maximum": limits.PAGE_ENTRIES_MAX}
    page = [
        *_FILTERS,
        _query("state", {**_STATE, "default": "waiting"}, _STATE_TEXT),
        _query("id", _TEXT, "only messages with this id"),
        _query("origin", _TEXT, "only this request"),
        _query("limit", {**limit, "default": limits.PAGE_ENTRIES_DEFAULT}, "most entries of the page"),
        _query("cursor", _TEXT, "cursor of the previous page"),
        _PAYLOAD,
    ]
    origin = {
        "name": "origin",
        "in": "path",
        "required": True,
        "schema": _TEXT,
        "description": "topic/partition/offset",
    }
    unknown = {"404": {"description": "the request is unknown"}}
    answers = _answers("Life") | unknown
    history = {"summary": "History of one request", "parameters": [origin, _PAYLOAD, _SCOPE], "responses": answers}
    listing = {"summary": "Pending messages, ordered", "parameters": page, "responses": _answers("Page")}
    counting = {
        "summary": "Number of pending messages; without `state`, of waiting and parked ones",
        "parameters": [*_FILTERS, _query("state", _STATE, f"{_STATE_TEXT}; absent: waiting and parked messages")],
        "responses": _answers("Count"),
    }
    standing = {"summary": "State of every shard", "parameters": [_SCOPE], "responses": _answers("Shards")}
    return {
        "/api/v1/pending": {"get": listing},
        "/api/v1/pending/count": {"get": counting},
        "/api/v1/pending/selected": _selecting(),
        "/api/v1/requests/{origin}": {"get": history},
        "/api/v1/shards": {"get": standing},
        "/api/v1/actions": {"get": _actions()},
        "/api/v1/dead-letters": {"get": _letters()},
    }


def describe() -> dict[str, Any]:
    """Returns the complete description."""
    times = {
        "at": {**_TEXT, "description": _TIME},
        "delay": {**_TEXT, "description": "from now: 90s, 2h30m, PT5M"},
        "level": _NUMBER,
        "grace": _TEXT,
    }
    alone = {"409": {"description": "there is no other process"}}
    draining: dict[str, Any] = {"summary": "Hand all shards of this process over to the others"}
    draining |= {"security": [{"token": []}], "responses": _answers("Draining", "202") | alone}
    name = {"name": "name", "in": "path", "required": True, "schema": _TEXT}
    page_file = {"summary": "The page for people", "responses": {"200": {"description": "a file"}}}
    itself = {"summary": "This description", "responses": {"200": {"description": "OpenAPI 3.1"}}}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Postdate",
            "version": "1",
            "description": "Queries and changes of the pending messages of a deployment.",
        },
        "paths": {
            "/": {"get": page_file},
            "/page/{name}": {"get": {**page_file, "parameters": [name]}},
            "/metrics": _plain("Metrics in Prometheus' text format"),
            "/healthz": _plain("Is the process alive?"),
            "/readyz": _plain("Is the process ready?"),
            "/api/v1/openapi.json": {"get": itself},
            **_queries(),
            "/api/v1/dead-letters/requeue": _requeueing(),
            "/api/v1/hold": _holding("Hold delivery, intake, or a target"),
            "/api/v1/release": _holding("End a hold"),
            "/api/v1/drain": {"post": draining},
            "/api/v1/cancel": _change("Cancel a pending message", {}),
            "/api/v1/cancel/selected": _changing_selected("Cancel", {}),
            "/api/v1/reschedule/selected": _changing_selected("Move", _MOVE),
            "/api/v1/deliver/selected": _changing_selected("Deliver now", {}),
            "/api/v1/reschedule": _change("Move a pending message to another time", times),
            "/api/v1/deliver": _change("Deliver a pending message now: a reschedule to the time of the control", {}),
            **{f"/api/v1/{action}": _change(summary, {}) for action, summary in _OF_SCHEDULES.items()},
            "/api/v1/backfill": _change("Deliver a recurring schedule again for times that have passed", _RANGE),
        },
        "components": {
            "schemas": _SCHEMAS,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }
