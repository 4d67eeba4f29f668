"""Goal: the page loads only its own files, its scripts match its HTML, and its colours have enough contrast.

Method: the text of the page's files is checked. The thresholds of contrast come from WCAG 2.2: 1.4.3 for text, and
1.4.11 for the edges of controls.
"""

from __future__ import annotations

import re
from importlib.resources import files

import pytest

_PAGE = files("postdate.sidecar.http.api") / "page"
HTML, CSS = ((_PAGE / name).read_text() for name in ("index.html", "page.css"))
SCRIPTS = {file.name: file.read_text() for file in _PAGE.iterdir() if file.name.endswith(".js")}

TEXT_MIN, EDGE_MIN = 4.5, 3.0
#: Pairs of colour names: a text and its background (TEXTS), or an edge and its background (EDGES).
TEXTS = [
    *((ink, ground) for ink in ("ink", "soft", "mark", "ill") for ground in ("card", "paper")),
    *(("well", "card"), ("warn", "card"), ("ill", "ill-paper"), ("mark-ink", "mark")),
]
EDGES = [("edge", "card"), ("edge", "paper"), ("mark", "line"), ("mark", "card")]
SCHEMES = [dict(re.findall(r"--([\w-]+): (#\w+)", rules)) for rules in re.findall(r":root \{(.*?)\}", CSS, re.DOTALL)]


def luminance(colour: str) -> float:
    digits = colour.removeprefix("#")
    pairs = [digit * 2 for digit in digits] if len(digits) == 3 else [digits[at : at + 2] for at in (0, 2, 4)]
    parts = [int(pair, 16) / 255 for pair in pairs]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    darker, lighter = sorted((luminance(one), luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize("colours", SCHEMES, ids=["light", "dark"])
def test_text_and_controls_have_enough_contrast(colours: dict[str, str]) -> None:
    faint = {
        pair: round(contrast(colours[pair[0]], colours[pair[1]]), 2)
        for pairs, least in ((TEXTS, TEXT_MIN), (EDGES, EDGE_MIN))
        for pair in pairs
        if contrast(colours[pair[0]], colours[pair[1]]) < least
    }
    assert faint == {}


def test_scripts_name_only_elements_that_exist() -> None:
    ids = re.findall(r'\bid="([\w-]+)"', HTML)
    assert len(ids) == len(set(ids))
    used = {name for text in SCRIPTS.values() for name in re.findall(r'(?:\$|Region)\("([\w-]+)"\)', text)}
    assert used
    assert used <= set(ids)
    pointed = " ".join(re.findall(r'(?:aria-labelledby|aria-describedby|for)="([\w -]+)"', HTML)).split()
    assert set(pointed) <= set(ids)


def test_every_field_has_a_label_and_every_view_a_link() -> None:
    labelled = set(re.findall(r'<label[^>]* for="([\w-]+)"', HTML))
    outside = re.sub(r"<label.*?</label>", "", HTML)
    fields = [re.search(r'id="([\w-]+)"', field) for field in re.findall(r"<(?:input|select)[^>]*>", outside)]
    assert {field[1] if field else "" for field in fields} <= labelled
    assert re.findall(r'data-view="(\w+)"', HTML) == re.findall(r'<a href="#(\w+)">', HTML)


def test_the_files_use_no_other_host_and_import_only_each_other() -> None:
    for name, text in {"index.html": HTML, "page.css": CSS, **SCRIPTS}.items():
        assert not re.search(r"https?:|@import|url\(", text), name
        assert set(re.findall(r'from "\./([\w.]+)"|import "\./([\w.]+)"', text)) <= {
            *((script, "") for script in SCRIPTS),
            *(("", script) for script in SCRIPTS),
        }
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(", text), name
