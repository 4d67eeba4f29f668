"""Hooks of mkdocs: pages keep their paths in the repository, and linked files are copied beside them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("clients", "examples", "charts/postdate", "tests", "tests/support/*")
PAGES = ("*.md", "docs/*.md", "benchmarks/*.md", *(f"{folder}/README.md" for folder in FOLDERS))
_FENCE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s#]+)[^)\s]*\)")


def anchor(heading: str, separator: str) -> str:
    """Returns the anchor of a heading, as code forges make it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", separator)


def on_config(config: MkDocsConfig) -> None:
    toc: dict[str, Any] = {"slugify": anchor, "permalink": True}
    config.mdx_configs["toc"] = toc


def on_files(files: Files, config: MkDocsConfig) -> Files:
    theme = [file for file in files if file.src_dir != config.docs_dir]
    pages = sorted({page for pattern in PAGES for page in ROOT.glob(pattern)})
    linked = {path for page in pages for path in _linked(page)} - {*pages}
    places = [path.relative_to(ROOT).as_posix() for path in [*pages, *sorted(linked)]]
    files_of_repository = [File(place, str(ROOT), config.site_dir, config.use_directory_urls) for place in places]
    return Files([*theme, *files_of_repository])


def on_page_markdown(markdown: str, **_: object) -> str:
    """Indents the content of numbered steps by four columns, as Python-Markdown requires. Code forges accept three."""
    parts = _FENCE.split(markdown)
    return "".join(part if part.startswith("```") else re.sub(r"(?m)^ {3}(?=\S)", "    ", part) for part in parts)


def _linked(page: Path) -> set[Path]:
    """Returns the files of the repository to which a page links."""
    links = _LINK.findall(page.read_text(encoding="utf-8"))
    targets = {(page.parent / link).resolve() for link in links if not re.match(r"[a-z]+:", link)}
    return {target for target in targets if target.is_file() and target.is_relative_to(ROOT)}
