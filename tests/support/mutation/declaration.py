"""The form in which undetectable changes are declared."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path

from support.mutation.changes import scope_text


@dataclass(frozen=True)
class Undetectable:
    """Changes of one function that are undetectable for the same reason. `what`: describes the changes. `changes`: (old
    text, new text); the old text occurs once in the function."""

    path: str
    function: str
    what: str
    reason: str
    changes: tuple[tuple[str, str], ...]

    def texts(self, root: Path) -> list[str]:
        """Returns the text of the function after each of the changes, as `CodeChange.scope_text` returns it."""
        source = (root / self.path).read_text(encoding="utf-8")
        whole = scope_text(ast.parse(source), self.function)
        texts = []
        for old, new in self.changes:
            assert whole.count(old) == 1, f"{self.function}: {whole.count(old)} times {old}"
            texts.append(ast.unparse(ast.parse(whole.replace(old, new))))
        return texts


def undetectable(path: str, function: str, what: str, reason: str, *changes: tuple[str, str]) -> Undetectable:
    """Returns a declaration, for a list."""
    return Undetectable(path, function, what, reason, changes)
