"""Writes the result of a job to its output stream, as text or as one JSON object."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, TextIO

from rich.console import Console
from rich.table import Table


def write_result(result: Mapping[str, Any], shown: Iterable[str | Table], form: str, stream: TextIO) -> None:
    """Writes `result` on one line if `form` is `json`, otherwise the lines and tables `shown`."""
    if form == "json":
        stream.write(json.dumps(result, ensure_ascii=False) + "\n")
        return
    console = Console(file=stream, highlight=False, soft_wrap=True)
    for part in shown:
        console.print(part, markup=False)
