"""The page at `/`: three static files of this package.

They use no other host, and a Content-Security-Policy makes the browser enforce it: scripts, styles and requests come
from this port, inline scripts are forbidden, and no page may frame this one. The files contain no data of a deployment,
so every client may load them; the requests of the page need the same rights as those of any client.

Thread rule: immutable after import.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

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
PATHS: Final = {"/": "index.html", "/page/page.css": "page.css", "/page/page.js": "page.js"}
"""The files by path."""

_contents: Final = {name: (files(__package__) / "page" / name).read_bytes() for name in PATHS.values()}


def page_file(request: Request) -> Response:
    """The file of a path. REQUIRES: the path is one of PATHS."""
    name = PATHS[request.url.path]
    return Response(_contents[name], media_type=_TYPES[name.rpartition(".")[2]], headers=dict(_HEADERS))
