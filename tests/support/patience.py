"""How long tests wait for what must happen: a bound on hanging. Claims about speed are made in rounds (`rounds.py`)."""

from __future__ import annotations

#: s. Nothing that is waited for takes a twentieth of it on this project's own machines; other machines are ten times
#: slower, and do other things as well.
PATIENCE_S = 300.0
