"""The configuration properties of librdkafka that users may set, as the library itself lists them.

The installed library prints its list through its C interface, since the Python package has no function for it. The
result omits properties whose value is a function or an object, and those that Postdate sets itself.
"""

from __future__ import annotations

import ctypes
import re
from pathlib import Path

import confluent_kafka

from postdate.kafka.errors import SettingRefused
from postdate.kafka.settings import refuse
from postdate.sidecar.config.values import is_secret

_ROW = re.compile(r"^([a-z][a-z0-9._]*) +\|.*\*Type: ([^*]+)\*$", re.MULTILINE)
_LIBRARY = re.compile(r"/\S*librdkafka[^/\s]*$", re.MULTILINE)
#: Property types whose values cannot be written in a file.
_NOT_WRITTEN = ("pointer", "see dedicated API")


def librdkafka_names() -> list[str]:
    """Returns the sorted names that a configuration may contain; a secret also has a name for the file that contains
    it."""
    names = {name for name in written_names() if _is_free(name)}
    return sorted(names | {f"{name}.file" for name in names if is_secret(name)})


def written_names() -> set[str]:
    """Returns the names of all properties whose values can be written in a file."""
    return {name for name, kind in _ROW.findall(_printed()) if kind not in _NOT_WRITTEN}


def _is_free(name: str) -> bool:
    try:
        refuse("kafka.common", name, 2_000)
    except SettingRefused:
        return False
    return True


def _printed() -> str:
    """Returns the library's own table, in the format of its CONFIGURATION.md."""
    assert confluent_kafka.libversion(), "this import has loaded the library"
    (path,) = set(_LIBRARY.findall(Path("/proc/self/maps").read_text(encoding="utf-8")))
    library, system = ctypes.CDLL(path), ctypes.CDLL(None)
    system.open_memstream.restype = ctypes.c_void_p
    text, size = ctypes.c_char_p(), ctypes.c_size_t()
    file = ctypes.c_void_p(system.open_memstream(ctypes.byref(text), ctypes.byref(size)))
    library.rd_kafka_conf_properties_show(file)
    system.fclose(file)
    return ctypes.string_at(text, size.value).decode()
