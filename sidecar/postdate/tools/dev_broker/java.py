"""Finds a Java that can run Kafka 4 and Spark 4: version 17 or later. If JAVA_HOME is set, PATH is not searched."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from postdate.kafka.errors import DevBrokerFailed

#: Kafka 4 brokers and Spark 4 need Java 17.
VERSION_MIN = 17

_ADVICE = (
    f"Install a Java runtime of version {VERSION_MIN} or later (Debian: apt-get install openjdk-17-jre-headless; "
    "macOS: brew install openjdk@17), or point JAVA_HOME at one. `postdate dev --docker` starts a broker without Java."
)


def find_java(what: str = "Kafka") -> str:
    """Returns the path of a java executable of version 17 or later. Raises DevBrokerFailed if the Java of JAVA_HOME
    (without JAVA_HOME, the first on PATH) is missing, older or of unknown version, or does not run. The message names
    the remedy. `what`: the program that needs Java."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if java is None or not os.access(java, os.X_OK):
        where = f"JAVA_HOME is {home}, which has no bin/java" if home else "there is no java on PATH"
        raise DevBrokerFailed(f"{what} needs Java, and {where}. {_ADVICE}")
    version = major_version(_version_text(java))
    if version is None or version < VERSION_MIN:
        found = "of unknown version" if version is None else f"version {version}"
        raise DevBrokerFailed(f"{what} needs Java {VERSION_MIN} or later, and {java} is {found}. {_ADVICE}")
    return java


def major_version(text: str) -> int | None:
    """Returns the major number in the output of `java -version` (17 of "17.0.15", 8 of "1.8.0_292"); None if the output
    has no version."""
    match = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(match.group(1)) if match else None


def _version_text(java: str) -> str:
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DevBrokerFailed(f"{java} does not run ({error}). {_ADVICE}") from error
    return done.stderr + done.stdout
