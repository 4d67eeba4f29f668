"""The log of actions: each permitted change over HTTP, but not a plan, with its user, its time and its answer.

The log consists of JSON lines in the data directory. It survives a restart, and has the same protection as the messages
there. It has at most two files of ACTIONS_FILE_SIZE_BYTES_MAX: a full file replaces the previous one. All workers of
the directory write to the same files.

A process that forwards a change to other processes sends the id of the action with it, and each process records an
entry. The merged log shows only the entry of the process that received the change. If a command sent the change to
several processes itself, the merged log shows the entries of all of them.

The client supplies the name of the user without proof, since all users share the token. Values of messages and headers
are never recorded. A key of messages is recorded only if `http.payloads` is `allowed`.

Thread rule: any thread; a lock on the directory guards the files, also against other processes.
"""

from __future__ import annotations

import fcntl
import json
import logging
import math
import os
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

from starlette.requests import Request
from starlette.responses import Response

from postdate.sidecar.http import limits

log = logging.getLogger(__name__)

ACTOR: Final = "Postdate-Actor"
ACTION: Final = "Postdate-Action"
_ID: Final = re.compile(r"[0-9a-f]{16}", re.ASCII)
_FIELDS: Final = frozenset(
    {
        *("origin", "id", "topic", "partition", "partitions", "target", "id_prefix", "key", "from", "until", "what"),
        *("by", "at", "delay", "level", "grace", "start", "end", "reason", "origins"),
    }
)
_KEY: Final = "key"
_HIDDEN: Final = "(not recorded)"
Entry = dict[str, Any]


class ActionLog:
    """The log of the processes that share a data directory. If `directory` is None, nothing is recorded."""

    def __init__(self, directory: Path | None) -> None:
        self._directory = directory

    def record(self, entry: Entry) -> None:
        """Appends an entry with one write and without a sync. A failure is only logged, since the change may already
        have been made."""
        if self._directory is None:
            return
        line = json.dumps(entry, separators=(",", ":")).encode() + b"\n"
        try:
            with self._locked(self._directory) as (present, previous):
                if _size_bytes(present) + len(line) > limits.ACTIONS_FILE_SIZE_BYTES_MAX:
                    present.replace(previous)
                descriptor = os.open(present, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
                try:
                    size_bytes = os.fstat(descriptor).st_size
                    is_cut_off = size_bytes > 0 and os.pread(descriptor, 1, size_bytes - 1) != b"\n"
                    os.write(descriptor, b"\n" + line if is_cut_off else line)
                finally:
                    os.close(descriptor)
        except OSError as error:
            log.warning("the log of actions in %s cannot be written: %s", self._directory, error.strerror)

    def read(self) -> list[Entry]:
        """Returns all complete entries, in the order in which they were written. Raises OSError."""
        if self._directory is None:
            return []
        with self._locked(self._directory) as (present, previous):
            lines = [line for path in (previous, present) for line in _lines(path)]
        return [entry for entry in map(_decoded, lines) if entry is not None]

    @contextmanager
    def _locked(self, directory: Path) -> Iterator[tuple[Path, Path]]:
        """Yields the paths of the present and the previous file. No other thread or process uses the files within the
        block."""
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield directory / "actions.jsonl", directory / "actions.previous.jsonl"
        finally:
            os.close(descriptor)


def labels_of(request: Request) -> dict[str, str]:
    """Returns the headers that identify the action and the user in a forwarded request."""
    if not hasattr(request.state, "action_id"):
        action_id = request.headers.get(ACTION, "")
        request.state.action_id = action_id if _ID.fullmatch(action_id) else new_action_id()
    labels = {ACTION: request.state.action_id}
    if ACTOR in request.headers:
        labels[ACTOR] = request.headers[ACTOR]
    return labels


def new_action_id() -> str:
    """Returns a new random id."""
    return secrets.token_hex(8)


def entry_of(request: Request, response: Response, process: str, now_ms: int, keeps_keys: bool) -> Entry:
    """Returns the log entry of an answered change. `process`: the name of this process. `keeps_keys`: the entry may
    contain the key of messages."""
    labels = labels_of(request)
    return {
        "at_ms": now_ms,
        "action_id": labels[ACTION],
        "process": process,
        "forwarded": request.query_params.get("scope") == "process",
        "who": _actor(labels.get(ACTOR, "")),
        "address": request.client.host if request.client is not None else None,
        "action": request.url.path.removeprefix("/api/v1/"),
        "asked": _body_fields(_json(getattr(request.state, "body", b"")), keeps_keys),
        "status": response.status_code,
        "answer": _answer_fields(_json(bytes(response.body)), _json(getattr(request.state, "body", b"")), keeps_keys),
    }


def merged_actions(answers: Sequence[Mapping[str, Any]], limit: int) -> list[Entry]:
    """Returns the newest entries of several processes, the newest first.

    A forwarded action has one entry, that of the process that received it. If this entry is missing, and for an action
    of a command, there is one entry for each process that was called.
    """
    parts: dict[str, dict[str, Entry]] = {}
    received: dict[str, Entry] = {}
    for entry in (entry for answer in answers for entry in answer["actions"]):
        identity = json.dumps([entry["action_id"], entry["action"], entry["asked"], entry["who"]], sort_keys=True)
        if entry["forwarded"]:
            parts.setdefault(identity, {})[entry["process"]] = entry
        else:
            received[identity] = entry
    merged = [*received.values()]
    for identity, by_process in parts.items():
        if identity not in received:
            merged += by_process.values()
    return sorted(merged, key=lambda entry: int(entry["at_ms"]), reverse=True)[:limit]


def without_keys(entry: Entry) -> Entry:
    """Returns the entry without the key of messages, for an answer without payloads."""
    fields = entry.get("asked")
    if not isinstance(fields, dict) or _KEY not in fields:
        return entry
    answer = {name: value for name, value in entry["answer"].items() if name != "error"}  # an error may quote the key
    return {**entry, "asked": {**fields, _KEY: _HIDDEN}, "answer": answer}


def _actor(header: str) -> str | None:
    """Returns the name in a percent-encoded header, as one line of bounded length; None if it is empty."""
    name = "".join(char for char in unquote(header) if char.isprintable()).strip()
    return name[: limits.ACTOR_LENGTH_MAX] or None


def _body_fields(body: Any, keeps_keys: bool) -> dict[str, Any]:
    if not isinstance(body, dict):
        return {}
    shown = {name: _short(value) for name, value in sorted(body.items()) if name in _FIELDS}
    return {**shown, _KEY: _HIDDEN} if _KEY in shown and not keeps_keys else shown


def _answer_fields(response: Any, body: Any, keeps_keys: bool) -> dict[str, Any]:
    """Returns the fields of an answer. Replaces each list by its length, and adds the first origins of controls."""
    if not isinstance(response, dict):
        return {}
    if "error" in response and isinstance(body, dict) and _KEY in body and not keeps_keys:
        return {}  # an error may quote the key
    shown = {name: len(value) if isinstance(value, list) else _short(value) for name, value in response.items()}
    controls = response.get("controls")
    if isinstance(controls, list):
        shown["origins"] = [control["origin"] for control in controls[: limits.ACTION_VALUES_MAX]]
    return shown


def _short(value: Any) -> Any:
    """Returns a value of bounded length that JSON and UTF-8 can represent. A client may send 1e999 and lone
    surrogates."""
    if isinstance(value, list):
        return [_short(item) for item in value[: limits.ACTION_VALUES_MAX]]
    if isinstance(value, str):
        return value[: limits.ACTION_VALUE_LENGTH_MAX].encode("utf-8", "replace").decode()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, int | float | None) and len(str(value)) <= limits.ACTOR_LENGTH_MAX else None


def _json(text: bytes) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _decoded(line: bytes) -> Entry | None:
    """Returns the entry of a line; None if the line is not a complete entry, for example after a crash."""
    entry = _json(line)
    if not isinstance(entry, dict) or not isinstance(entry.get("at_ms"), int):
        return None
    for part in ("asked", "answer"):  # earlier versions recorded values that JSON cannot represent
        if isinstance(entry.get(part), dict):
            entry[part] = {name: _short(value) for name, value in entry[part].items()}
    return entry


def _size_bytes(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _lines(path: Path) -> list[bytes]:
    try:
        return path.read_bytes().splitlines()
    except FileNotFoundError:
        return []
