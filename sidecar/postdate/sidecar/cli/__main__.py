"""`python -m postdate.sidecar.cli`: the program `postdate`, for processes that start themselves again."""

from __future__ import annotations

from postdate.sidecar.cli import main

main()
