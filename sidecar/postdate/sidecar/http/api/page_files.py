"""The page at `/`: static files of this package, which the port serves unchanged.

The page uses no other host. A Content-Security-Policy makes the browser enforce this: scripts and styles come only from
this port, requests go only to this port, inline scripts are forbidden, and no page may frame this one. The files
contain no data of a deployment, so every client may load them. The requests of the page need the same rights as
requests of any client.

Thread rule: immutable after import.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from postdate.sidecar.http.access.access import Refused

_TYPES: Final = {"html": "text/html", "css": "text/css", "js": "text/javascript"}
_HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
_contents: Final = {file.name: file.read_bytes() for file in (files(__package__) / "page").iterdir()}
PATHS: Final = {"/": "index.html", **{f"/page/{name}": name for name in sorted(_contents) if name != "index.html"}}
"""The names of the files by path."""


def page_file(request: Request) -> Response:
    """Returns the file of a path. Raises Refused if there is no such file."""
    name = PATHS.get(request.url.path)
    if name is None:
        raise Refused(404, "the page has no such file")
    return Response(_contents[name], media_type=_TYPES[name.rpartition(".")[2]], headers=dict(_HEADERS))
