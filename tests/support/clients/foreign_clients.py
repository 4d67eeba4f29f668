"""Kafka clients that are not based on librdkafka's Python package: kcat, Kafka's own Java client, and KafkaJS.

Each producer sends messages in order to one topic. The Java and JavaScript programs in this folder read lines: `key`,
`value` and `header <name>`, each followed by `null` or by `x` and hexadecimal digits, then `send`. A third program
prints the values that a member of a share group reads.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from tempfile import NamedTemporaryFile

from postdate.tools.dev_broker.jars import kafka_libs
from support.deployments.programs import need_program
from support.repository import ROOT
from support.waiting.timeouts import WAIT_TIMEOUT_S

_CLIENTS = Path(__file__).parent
_JAVASCRIPT = ROOT / "examples" / "javascript"


@dataclass(frozen=True)
class Message:
    """A Kafka record as its producer specifies it; `headers` keep their order and may repeat a name."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()

    def with_headers(self, *more: tuple[str, bytes | None]) -> Message:
        return Message(self.key, self.value, self.headers + more)


Producer = Callable[[str, str, Iterable[Message]], None]
"""(bootstrap servers, topic, messages): returns once all messages are acknowledged."""


def produce_with_kcat(bootstrap: str, topic: str, messages: Iterable[Message]) -> None:
    """Sends each message with one kcat process. Its arguments cannot contain NUL, and it sends an empty or null value
    only after a key (`-K`)."""
    kcat = need_program("kcat", "kcat")
    for message in messages:
        command: list[str | bytes] = [kcat, "-P", "-b", bootstrap, "-t", topic]
        for name, value in message.headers:
            command += ["-H", name.encode() if value is None else name.encode() + b"=" + value]
        if not message.value:
            assert message.key is not None
            null = ["-Z"] if message.value is None else []
            _run([*command, "-K", "|", *null], message.key + b"|\n")
            continue
        if message.key is not None:
            command += ["-k", message.key]
        with NamedTemporaryFile() as file:
            file.write(message.value)
            file.flush()
            _run([*command, file.name], b"")


def produce_with_java(bootstrap: str, topic: str, messages: Iterable[Message]) -> None:
    """Sends messages with Kafka's Java client, from the jars of the dev broker."""
    send_with_java(bootstrap, topic, messages)


def send_with_java(bootstrap: str, topic: str, messages: Iterable[Message]) -> list[tuple[int, int]]:
    """Sends like `produce_with_java`; returns partition and offset of each message as the broker acknowledged them."""
    return _acknowledged(_run_source("Produce.java", bootstrap, topic, given=_lines(messages)))


def share_consume_with_java(bootstrap: str, group_id: str, topic: str, last: str) -> list[str]:
    """Returns the values that a member of a share group reads, up to and including `last`; it acknowledges all of
    them."""
    return _run_source("ShareConsume.java", bootstrap, group_id, topic, last).decode().splitlines()


def produce_with_javascript(bootstrap: str, topic: str, messages: Iterable[Message]) -> None:
    """Sends messages with KafkaJS, which cannot send a null header value."""
    node = need_program("node", "nodejs")
    command = [node, str(_CLIENTS / "produce.cjs"), str(fetch_kafkajs()), bootstrap, topic]
    _acknowledged(_run(command, _lines(messages)))


def fetch_kafkajs() -> Path:
    """Returns the folder in which the examples keep KafkaJS; if it is missing, installs it with the command of the
    examples."""
    library = _JAVASCRIPT / "node_modules" / "kafkajs"
    if not (library / "package.json").exists():
        npm = need_program("npm", "npm")
        _run([npm, "install", "--prefix", str(_JAVASCRIPT), "--no-audit", "--no-fund", "--silent"], b"")
    return library


def _lines(messages: Iterable[Message]) -> bytes:
    lines: list[str] = []
    for message in messages:
        lines += [f"key {_word(message.key)}", f"value {_word(message.value)}"]
        lines += [f"header {name} {_word(value)}" for name, value in message.headers]
        lines.append("send")
    return "".join(line + "\n" for line in lines).encode()


def _word(value: bytes | None) -> str:
    return "null" if value is None else "x" + value.hex()


def _acknowledged(output: bytes) -> list[tuple[int, int]]:
    return [(int(partition), int(offset)) for partition, offset in (line.split() for line in output.splitlines())]


def configure_with_java(tool: str, *arguments: str) -> None:
    """Runs the class behind `kafka-configs.sh`, from the jars of the dev broker."""
    assert tool == "kafka-configs.sh"
    _run([*_java(), "kafka.admin.ConfigCommand", *arguments], b"")


def _run_source(program: str, *arguments: str, given: bytes = b"") -> bytes:
    """Runs a Java source file of this folder; returns its output."""
    need_program("javac", "openjdk-17-jdk-headless")  # running a source file takes the compiler of a JDK
    return _run([*_java(), str(_CLIENTS / program), *arguments], given)


def _java() -> list[str]:
    """Returns the first words of a command that runs Java with the jars of the dev broker."""
    java = need_program("java", "openjdk-17-jdk-headless")
    options = ["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    return [java, *options, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", f"{kafka_libs()}/*"]


def _run(command: list[str | bytes] | list[str], given: bytes) -> bytes:
    """Returns the output of a program; if it fails, the test fails with its error output."""
    environment = {**os.environ, "JAVA_TOOL_OPTIONS": ""}
    done = subprocess.run(
        command, input=given, capture_output=True, timeout=WAIT_TIMEOUT_S, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    return done.stdout
