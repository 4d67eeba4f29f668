"""`python -m postdate.cli`: the program `postdate`, for processes that start further processes of Postdate."""

from __future__ import annotations

from postdate.cli import main

main()
