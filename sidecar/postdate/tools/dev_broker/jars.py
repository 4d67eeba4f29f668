"""Apache Kafka's own jars, fetched once with the Ivy that PySpark ships, and kept in a cache directory.

The cache is `$XDG_CACHE_HOME/postdate/kafka-<version>` (by default below ~/.cache). One rename creates it, so an
interrupted download leaves no incomplete cache; with a file lock, processes that start together download once.
`POSTDATE_KAFKA_LIBS` names a directory of jars to use instead, such as the `libs` of an unpacked Kafka.
`POSTDATE_IVY_SETTINGS` names an Ivy settings file, for example for a mirror.
"""

from __future__ import annotations

import fcntl
import importlib.util
import os
import re
import shutil
import subprocess
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from postdate.kafka.errors import DevBrokerFailed
from postdate.tools.dev_broker.java import find_java

#: Not 4.3, which loses the markers of transactions on partitions without a leader. While a single node starts, no
#: partition has a leader (KAFKA-20734, docs/guarantees.md).
KAFKA_VERSION = "4.2.1"
#: Kafka logs through slf4j 1.7 and ships no backend for it. This backend writes to stderr, which goes to the log file.
SLF4J_VERSION = "1.7.36"

#: Called with the current step, the number of finished steps, and the total (0: not known yet).
Progress = Callable[[str, int, int], None]

_IVY_XML = """<ivy-module version="2.0">
  <info organisation="postdate" module="dev-broker"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>
    <dependency org="org.apache.kafka" name="kafka_2.13" rev="{version}" conf="default->default"/>
    <dependency org="org.slf4j" name="slf4j-simple" rev="{slf4j}" conf="default->default"/>
  </dependencies>
</ivy-module>
"""


def quiet(what: str, done: int, total: int) -> None:
    """Does nothing: a progress callback without output."""


def cache_dir() -> Path:
    """Returns the cache directory of this user; it may not exist yet."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base, "postdate")


def kafka_libs(progress: Progress = quiet, version: str = KAFKA_VERSION) -> Path:
    """Returns the directory with Kafka's jars. If this machine has none, downloads them first (44 MB, about 30 s). The
    variable POSTDATE_KAFKA_LIBS replaces only the default version.

    Raises DevBrokerFailed if POSTDATE_KAFKA_LIBS names a directory without Kafka's jar, if PySpark or Java is missing
    for the download, or if the download fails. The message names the remedy.
    """
    given = os.environ.get("POSTDATE_KAFKA_LIBS")
    if given and version == KAFKA_VERSION:
        if not any(Path(given).glob("kafka_2.13-*.jar")):
            raise DevBrokerFailed(f"POSTDATE_KAFKA_LIBS is {given}, which holds no kafka_2.13-*.jar.")
        return Path(given)
    libs = cache_dir() / f"kafka-{version}"
    if libs.is_dir():
        return libs
    ivy_jar, java = find_ivy(), find_java()
    with _locked(cache_dir() / "fetch.lock"):
        if not libs.is_dir():  # another process may have downloaded them while this one waited for the lock
            _fetch(java, ivy_jar, libs, version, progress)
    return libs


def find_ivy() -> Path:
    """Returns the Ivy jar of the installed PySpark; raises DevBrokerFailed with the remedy if there is none."""
    spec = importlib.util.find_spec("pyspark")
    if spec is not None and spec.origin is not None:
        found = sorted(Path(spec.origin).parent.glob("jars/ivy-*.jar"))
        if found:
            return found[-1]
    raise DevBrokerFailed(
        "Kafka's jars are fetched with the Ivy that PySpark ships, and PySpark is not installed. "
        "Install it with: pip install 'postdate[spark]' — or set POSTDATE_KAFKA_LIBS to the libs directory of an "
        "unpacked Kafka, or use `postdate dev --docker`."
    )


def _fetch(java: str, ivy_jar: Path, libs: Path, version: str, progress: Progress) -> None:
    partial = libs.with_name(libs.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    descriptor = partial / "ivy.xml"
    descriptor.write_text(_IVY_XML.format(version=version, slf4j=SLF4J_VERSION))
    command = [java, "-jar", str(ivy_jar), "-cache", str(cache_dir() / "ivy"), "-ivy", str(descriptor)]
    command += ["-confs", "default", "-retrieve", str(partial / "[artifact]-[revision].[ext]")]
    settings = os.environ.get("POSTDATE_IVY_SETTINGS")
    if settings:
        command += ["-settings", settings]
    ivy = _run_ivy(command, version, progress)
    if not any(partial.glob("kafka_2.13-*.jar")) or ivy.returncode != 0:
        raise DevBrokerFailed(
            f"Kafka {version} could not be fetched from Maven Central; is it reachable from here? (Behind a "
            "mirror: POSTDATE_IVY_SETTINGS; without a network: POSTDATE_KAFKA_LIBS.) The end of Ivy's output:\n"
            + "\n".join(ivy.stdout.splitlines())
        )
    descriptor.unlink()
    partial.rename(libs)
    shutil.rmtree(cache_dir() / "ivy", ignore_errors=True)  # a second copy of all jars


def _run_ivy(command: list[str], version: str, progress: Progress) -> subprocess.CompletedProcess[str]:
    """Runs Ivy to its end, and reports progress. The result's stdout has the last lines of output, with URLs
    shortened to their file names."""
    progress(f"resolving the jars of Kafka {version}", 0, 0)
    last_lines: deque[str] = deque(maxlen=15)
    found = fetched = 0
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as ivy:  # noqa: S603
        if ivy.stdout is None:
            raise DevBrokerFailed("Ivy was started without a pipe for its output.")
        for line in ivy.stdout:
            shown = re.sub(r"https?://\S*/", "", line.rstrip())
            last_lines.append(shown)
            if shown.lstrip().startswith("found "):
                found += 1
                progress(f"resolving the jars of Kafka {version}", 0, 0)
            elif shown.startswith("downloading "):
                fetched += 1
                progress(f"fetching {shown.split()[1]}", fetched, max(found, fetched))
    return subprocess.CompletedProcess(command, ivy.returncode, stdout="\n".join(last_lines))


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Holds an exclusive file lock; waits until it is free."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
