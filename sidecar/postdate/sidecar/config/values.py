"""Converts a setting from a file, the environment or a flag into the value of an option, and durations back into text.

Pure functions. A value may be typed (TOML) or text (environment, flags). Every option except the tables of
`request_topics` accepts both forms, so a setting can be moved between sources unchanged. Durations (`..._ms`) are
integers or `90s`, `2h30m`, `P1DT12H`; sizes (`..._bytes...`) are integers or `512KiB`, `16MiB`.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, get_args, get_origin

from postdate.kafka.secrets import MASK, Secret, SecretFile
from postdate.kafka.settings import PROPERTY_NAMES
from postdate.sidecar.config.schema import Leaf
from postdate.wire.values.durations import format_duration, parse_duration_ms

_SIZE = re.compile(r"(\d+)\s*(B|KiB|MiB|GiB)?", re.IGNORECASE)
_SIZE_UNIT = {"b": 1, "kib": 1024, "mib": 1024**2, "gib": 1024**3}
_SECRET = re.compile(r"(password|passphrase|secret|key\.pem|jaas\.config|oauthbearer\.config)$")
_BEHIND_SCHEME = re.compile(r"(?<=://)\S+")
_USER_INFO = re.compile(r"[^/\s,:@]+:[^/\s,@]+@")


def is_secret(name: str) -> bool:
    """True if the librdkafka property `name` holds a secret."""
    return _SECRET.search(name) is not None


def may_be_secret(name: str) -> bool:
    """True if the property `name` holds a secret or is unknown. An unknown name may be a misspelt secret: the client
    library refuses it, but only when a client is created."""
    return is_secret(name) or name not in PROPERTY_NAMES


def without_secrets(text: str) -> str:
    """Returns a text with the user, the password and the query of each URL in it masked."""
    return _USER_INFO.sub(f"{MASK}@", _BEHIND_SCHEME.sub(_masked_url, text))


def _masked_url(behind_scheme: re.Match[str]) -> str:
    user, at, place = behind_scheme[0].rpartition("@")
    if "?" in user:  # the @ may be part of a password or of a query
        return MASK
    host, query, _ = place.partition("?")
    return (f"{MASK}@" if at else "") + host + (f"?{MASK}" if query else "")


def property_text(name: str, raw: object) -> str:
    """Returns the text that librdkafka expects for a property; a `Secret` if it may be one. Raises ValueError if the
    value is not of a simple type."""
    if isinstance(raw, SecretFile):
        return raw
    if isinstance(raw, bool):
        text = "true" if raw else "false"
    elif isinstance(raw, (int, float, str)):
        text = str(raw)
    else:
        raise ValueError("takes a text, a number, true or false")
    return Secret(text) if may_be_secret(name) else text


def convert(leaf: Leaf, raw: object) -> Any:
    """Converts `raw` to the type of option `leaf`. Raises ValueError if it has a wrong form or lies outside the bounds;
    the text names the accepted values."""
    if leaf.choices:
        if raw not in leaf.choices:
            raise ValueError(f"takes one of {', '.join(leaf.choices)}")
        return raw
    if get_origin(leaf.hint) is tuple:
        items = _items(raw)
        if get_args(leaf.hint)[0] is int:
            return tuple(_number(leaf, item) for item in items)
        if not all(isinstance(item, str) for item in items):
            raise ValueError("takes a list of texts")
        return tuple(items)
    if leaf.hint is int:
        return _number(leaf, raw)
    if not isinstance(raw, str):
        raise ValueError("takes a text")
    if leaf.hint is Path:
        return Path(raw).expanduser() if raw else None
    return raw


def _items(raw: object) -> list[Any]:
    """Returns the members of a list, or of a text that separates them by commas or spaces."""
    if isinstance(raw, str):
        return [item for item in re.split(r"[,\s]+", raw) if item]
    if isinstance(raw, (list, tuple)):
        return list(raw)
    raise ValueError("takes a list, or a text with commas")


def _number(leaf: Leaf, raw: object) -> int:
    number = _parse_number(leaf.name, raw)
    low, high = leaf.option.low, leaf.option.high
    if low is not None and number < low:
        raise ValueError(f"must be at least {low}{_note(leaf.name, low)}")
    if high is not None and number > high:
        raise ValueError(f"must be at most {high}{_note(leaf.name, high)}")
    return number


def duration_text(name: str, value: object) -> str:
    """Returns the value of a `..._ms` option as a duration such as `90s`, or its list of values as durations; empty for
    a single value below a second, and for other options."""
    if not name.endswith("_ms"):
        return ""
    if isinstance(value, (list, tuple)):
        return " ".join(map(format_duration, value))
    return format_duration(value) if isinstance(value, int) and value >= 1_000 else ""


def _note(name: str, number: int) -> str:
    text = duration_text(name, number)
    return f" ({text})" if text else ""


def _parse_number(name: str, raw: object) -> int:
    if isinstance(raw, int) and not isinstance(raw, bool):
        return raw
    if not isinstance(raw, str):
        raise ValueError("takes a whole number")
    text = raw.strip()
    if name.endswith("_ms"):
        try:
            return parse_duration_ms(text)
        except ValueError:
            raise ValueError("takes milliseconds, or a duration such as 90s, 2h30m, 7d") from None
    if "_bytes" in name:
        match = _SIZE.fullmatch(text)
        if match is None:
            raise ValueError("takes bytes, or a size such as 512KiB, 16MiB")
        return int(match[1]) * _SIZE_UNIT[(match[2] or "B").lower()]
    try:
        return int(text)
    except ValueError:
        raise ValueError("takes a whole number") from None
