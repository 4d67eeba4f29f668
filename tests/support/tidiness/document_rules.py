"""House rules for documents, docstrings and comments: links that resolve, commands that exist, and plain English."""

from __future__ import annotations

import ast
import io
import re
import shlex
import tokenize
from collections.abc import Iterator
from pathlib import Path

import click

_FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`[^`\n]*`")
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ +(.*)$", re.MULTILINE)
_MENTION = re.compile(r"(?<![\w/.-])docs/[a-z-]+\.md\b")
_TABLE_HEADER = re.compile(r"^\| `(postdate-[a-z-]+)`", re.MULTILINE)
#: A `postdate` command, but not the release name in a command such as `helm install postdate`.
_COMMAND = re.compile(r"(?<!install)(?<!template)(?<!upgrade)(?<!test)(?:^|[\s&|;(])postdate (?=[a-z])(.*)")
#: The maximum length of a line of prose. Rows of tables and code blocks cannot be wrapped.
LINE_CHARACTERS_MAX = 132
#: Words that make a sentence hard to read, by rule 0 of the house style.
_WORDS = re.compile(
    r"""\b(?:anew|amiss|mend(?:s|ed|ing)?|likewise|whoever
    |(?<!nothing\s)(?<!what\s)(?<!anything\s)(?<!everything\s)(?<!something\s)(?<!who\s)else
    |(?<!there\s)(?:is|are)\s(?-i:none)|of\s(?:its|their|your|our|his|her|one's)\sown|by\s(?:itself|themselves)
    |tell(?:s|ing)?|told|sa(?:y|ys|id|ying))\b""",
    re.IGNORECASE | re.VERBOSE,
)
#: A sentence or a table cell whose subject is "what …" or "who …"; questions are exempt.
_NOUN_PHRASE = re.compile(r"(?:^|(?<=[.:;|] ))(?:What|Who)\s[^.?|]*(?:[.|]|$)")


def anchors(text: str) -> set[str]:
    """Returns the anchors of a document's headings, as code forges make them."""
    found: list[str] = []
    for heading in _HEADING.findall(_FENCE.sub("", text)):
        anchor = re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")
        found.append(f"{anchor}-{found.count(anchor)}" if anchor in found else anchor)
    return set(found)


def link_complaints(root: Path, place: str, text: str) -> Iterator[str]:
    """Yields relative links that name no file of the repository, and anchors without a heading."""
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


def mention_complaints(root: Path, place: str, text: str) -> Iterator[str]:
    """Yields documents that a source names, such as `docs/protocol.md`, but that do not exist."""
    for name in sorted(set(_MENTION.findall(text))):
        if not (root / name).exists():
            yield f"{place}: {name} does not exist"


def length_complaints(place: str, text: str) -> Iterator[str]:
    """Yields lines of prose with more than LINE_CHARACTERS_MAX characters."""
    prose = _FENCE.sub(lambda block: "\n" * block.group().count("\n"), text)
    for number, line in enumerate(prose.splitlines(), 1):
        if len(line) > LINE_CHARACTERS_MAX and not line.lstrip().startswith("|"):
            yield f"{place}:{number}: {len(line)} characters, at most {LINE_CHARACTERS_MAX}"


def word_complaints(place: str, text: str) -> Iterator[str]:
    """Yields the words that make a sentence hard to read; code and headings are exempt."""
    for paragraph in re.split(r"\n\s*\n|\n(?=[-|] |\d+\. )", _FENCE.sub("", text)):
        if paragraph.lstrip().startswith("#"):
            continue
        prose = " ".join(_CODE.sub("``", paragraph).split()).lstrip("-| ")
        for found in (*_WORDS.finditer(prose), *_NOUN_PHRASE.finditer(prose)):
            yield f"{place}: {found.group()!r} in {prose[max(0, found.start() - 30) : found.end() + 30]!r}"


def commands(text: str) -> Iterator[list[str]]:
    """Yields the words of every `postdate …` command of a document, in code blocks and in the text."""
    code = "\n".join(block.group() for block in _FENCE.finditer(text)).replace("\\\n", " ")
    spans = [span.strip("`") for span in _CODE.findall(_FENCE.sub("", text))]
    for line in [*code.splitlines(), *spans]:
        for found in _COMMAND.finditer(line):
            words = shlex.shlex(re.sub(r"(?<=\w)\|(?=\w)", "/", found.group(1)), posix=True, punctuation_chars=";&|)>")
            words.whitespace_split, words.commenters, words.quotes = True, "#", "\"'"
            yield list(_until_the_end(words))


def _until_the_end(words: Iterator[str]) -> Iterator[str]:
    try:
        for word in words:
            if set(word) <= set(";&|)>"):
                return
            yield word
    except ValueError:  # a quotation that continues on the next line
        return


def command_complaints(program: click.Group, place: str, text: str) -> Iterator[str]:
    """Yields commands of a document that do not exist, and options that a command does not have."""
    for words in commands(text):
        command: click.Command = program
        names: list[str] = []
        rest = list(words)
        while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
            found = [command.commands[name] for name in rest[0].split("/") if name in command.commands]
            if len(found) < len(rest[0].split("/")):
                yield f"{place}: postdate {' '.join([*names, rest[0]])} is no command"
                rest = []
                break
            names.append(rest.pop(0))
            command = found[0]
        options = {option for one in command.params for option in (*one.opts, *one.secondary_opts)} | {"-h", "--help"}
        given = {word.partition("=")[0] for word in rest if re.match(r"--?[A-Za-z]", word)}
        for option in sorted(given - options):
            yield f"{place}: postdate {' '.join(names)} has no option {option}"


def table_headers(text: str) -> set[str]:
    """Returns the header names that begin a row of a table: ``| `postdate-…` | …``."""
    return set(_TABLE_HEADER.findall(text))


def prose_complaints(place: str, source: str) -> Iterator[str]:
    """Yields violations of the rules for words (`word_complaints`) in the docstrings and comments of a Python file."""
    for number, text in _docstrings_and_comments(source):
        yield from word_complaints(f"{place}:{number}", text)


def _docstrings_and_comments(source: str) -> Iterator[tuple[int, str]]:
    """Yields line number and text of each docstring and each block of comments."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, node.value.value
    block: list[tuple[int, str]] = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            block.append((token.start[0], token.string.lstrip("#: ")))
        elif block and token.type not in (tokenize.NL, tokenize.INDENT, tokenize.DEDENT):
            yield block[0][0], " ".join(text for _, text in block)
            block = []
