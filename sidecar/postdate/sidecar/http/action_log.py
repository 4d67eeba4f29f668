"""The log of actions: who changed what over HTTP, when, and with which answer.

It is a file of JSON lines in the data directory, which survives a restart and has the same protection as the messages
there. Two files of ACTIONS_FILE_SIZE_BYTES_MAX bound it: a full file replaces the previous one. Workers share them.

A process that forwards a change to others passes on the id of the action, and each process records its part. The merged
log shows the part of the process that received the change. If a command asked each process itself, it shows every part.

The name of the user is what the client says: the token is shared, so it proves nothing. Values of messages and headers
are never recorded, and a key of messages only if `http.payloads` is `allowed`.

Thread rule: any thread; a lock of the directory guards the files, also against other processes.
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
    """The log of the processes that share a data directory. None: nothing is kept."""

    def __init__(self, directory: Path | None) -> None:
        self._directory = directory

    def record(self, entry: Entry) -> None:
        """Append an entry. A failure is only logged, since the change has happened. One write, no sync."""
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
        """All entries, the oldest first. Raises OSError."""
        if self._directory is None:
            return []
        with self._locked(self._directory) as (present, previous):
            lines = [line for path in (previous, present) for line in _lines(path)]
        return [entry for entry in map(_decoded, lines) if entry is not None]

    @contextmanager
    def _locked(self, directory: Path) -> Iterator[tuple[Path, Path]]:
        """The present and the previous file, while no other process uses them."""
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield directory / "actions.jsonl", directory / "actions.previous.jsonl"
        finally:
            os.close(descriptor)


def labels_of(request: Request) -> dict[str, str]:
    """The headers by which a forwarded change is the same action of the same user."""
    if not hasattr(request.state, "action_id"):
        given = request.headers.get(ACTION, "")
        request.state.action_id = given if _ID.fullmatch(given) else new_action_id()
    labels = {ACTION: request.state.action_id}
    if ACTOR in request.headers:
        labels[ACTOR] = request.headers[ACTOR]
    return labels


def new_action_id() -> str:
    """An id that no other action has."""
    return secrets.token_hex(8)


def entry_of(request: Request, response: Response, process: str, now_ms: int, keeps_keys: bool) -> Entry:
    """The entry of a change that was answered."""
    labels = labels_of(request)
    return {
        "at_ms": now_ms,
        "action_id": labels[ACTION],
        "process": process,
        "forwarded": request.query_params.get("scope") == "process",
        "who": _actor(labels.get(ACTOR, "")),
        "address": request.client.host if request.client is not None else None,
        "action": request.url.path.removeprefix("/api/v1/"),
        "asked": _asked(_json(getattr(request.state, "body", b"")), keeps_keys),
        "status": response.status_code,
        "answer": _answer(_json(bytes(response.body)), _json(getattr(request.state, "body", b"")), keeps_keys),
    }


def merged_actions(answers: Sequence[Mapping[str, Any]], limit: int) -> list[Entry]:
    """The newest entries of several processes, the newest first.

    An action that a process forwarded appears once. One of a command has an entry of each process, which may differ.
    """
    parts: dict[str, dict[str, Entry]] = {}
    received: dict[str, Entry] = {}
    for entry in (entry for answer in answers for entry in answer["actions"]):
        named = json.dumps([entry["action_id"], entry["action"], entry["asked"], entry["who"]], sort_keys=True)
        if entry["forwarded"]:
            parts.setdefault(named, {})[entry["process"]] = entry
        else:
            received[named] = entry
    found = [*received.values()]
    found += [entry for named, each in parts.items() if named not in received for entry in each.values()]
    return sorted(found, key=lambda entry: int(entry["at_ms"]), reverse=True)[:limit]


def without_keys(entry: Entry) -> Entry:
    """The entry as it is shown without payloads."""
    asked = entry.get("asked")
    if not isinstance(asked, dict) or _KEY not in asked:
        return entry
    answer = {name: value for name, value in entry["answer"].items() if name != "error"}  # it may quote the key
    return {**entry, "asked": {**asked, _KEY: _HIDDEN}, "answer": answer}


def _actor(header: str) -> str | None:
    """The name in a header, which is percent-encoded, in one line of bounded length."""
    name = "".join(char for char in unquote(header) if char.isprintable()).strip()
    return name[: limits.ACTOR_LENGTH_MAX] or None


def _asked(body: Any, keeps_keys: bool) -> dict[str, Any]:
    if not isinstance(body, dict):
        return {}
    shown = {name: _short(value) for name, value in sorted(body.items()) if name in _FIELDS}
    return {**shown, _KEY: _HIDDEN} if _KEY in shown and not keeps_keys else shown


def _answer(response: Any, body: Any, keeps_keys: bool) -> dict[str, Any]:
    """The fields of an answer; of a list its length, and of controls their first origins."""
    if not isinstance(response, dict):
        return {}
    if "error" in response and isinstance(body, dict) and _KEY in body and not keeps_keys:
        return {}  # it may quote the key
    shown = {name: len(value) if isinstance(value, list) else _short(value) for name, value in response.items()}
    controls = response.get("controls")
    if isinstance(controls, list):
        shown["origins"] = [each["origin"] for each in controls[: limits.ACTION_VALUES_MAX]]
    return shown


def _short(value: Any) -> Any:
    """A value of bounded length that JSON and UTF-8 can represent. A client may send 1e999 and lone surrogates."""
    if isinstance(value, list):
        return [_short(each) for each in value[: limits.ACTION_VALUES_MAX]]
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
    """The entry of a line; None for one that a crash has cut off."""
    entry = _json(line)
    if not isinstance(entry, dict) or not isinstance(entry.get("at_ms"), int):
        return None
    for part in ("asked", "answer"):  # older processes recorded values that no JSON answer may have
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
