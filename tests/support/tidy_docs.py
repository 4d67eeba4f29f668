"""House rules for the documents: links that resolve, and a header table that equals the code's."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

_FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ +(.*)$", re.MULTILINE)
_TABLE_HEADER = re.compile(r"^\| `(postdate-[a-z-]+)`", re.MULTILINE)


def anchors(text: str) -> set[str]:
    """Returns the anchors of a document's headings, as code forges make them."""
    prose = _FENCE.sub("", text)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in _HEADING.findall(prose)}


def link_complaints(root: Path, place: str, text: str) -> Iterator[str]:
    """Every relative link names a file of the repository, and its anchor a heading there."""
    here = root / place
    for link in _LINK.findall(_FENCE.sub("", text)):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (here.parent / path).resolve() if path else here
        if not target.exists():
            yield f"{place}: {link} leads nowhere"
        elif anchor and anchor not in anchors(target.read_text(encoding="utf-8")):
            yield f"{place}: {link} names no heading of its file"


def table_headers(text: str) -> set[str]:
    """Returns the header names that begin a row of a table: ``| `postdate-…` | …``."""
    return set(_TABLE_HEADER.findall(text))
