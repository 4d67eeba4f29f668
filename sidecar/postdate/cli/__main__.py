"""`python -m postdate.cli`: the program `postdate`, for processes that start themselves again."""

from __future__ import annotations

from postdate.cli import main

main()
