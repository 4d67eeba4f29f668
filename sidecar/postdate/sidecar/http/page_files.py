"""The page at `/`: three files of this package, served as they are.

They ask nothing of any other host, and a browser is told to see to it: scripts, styles and questions are this port's
own, no markup may bring any along, and no page may frame this one. The files hold nothing of a deployment, so whoever
reaches the port may load them; what they then ask needs what every question needs.

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
"""What is served where."""

_contents: Final = {name: (files(__package__) / "page" / name).read_bytes() for name in PATHS.values()}


def page_file(request: Request) -> Response:
    """The file of a path. REQUIRES: the path is one of PATHS."""
    name = PATHS[request.url.path]
    return Response(_contents[name], media_type=_TYPES[name.rpartition(".")[2]], headers=dict(_HEADERS))
