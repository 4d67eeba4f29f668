"""Goal: records of `postdate.client` have their documented effect on a real cluster, even if the producer has another
partitioner. The examples in the documents work.

Method: confluent-kafka with its default partitioner, which hashes differently from Java's, and a real sidecar with
seven partitions. The test schedules a message for each id, and then reschedules or cancels it. It compares every
verdict and every delivery with the requests.
"""

from __future__ import annotations

import io
import re
import shlex
from collections.abc import Iterable
from contextlib import redirect_stdout
from datetime import UTC, datetime, timedelta
from functools import partial
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, Message, Producer

from postdate.client import RequestRecord, RequestTopic, Verdict, VerdictRecord, decode_verdict
from postdate.wire.headers import DUE, ID
from postdate.wire.verdicts import encode_verdict
from support.deployments.sidecar_deployment import SidecarDeployment
from support.deployments.sidecars import postdate
from support.repository import ROOT
from support.waiting.timeouts import WAIT_TIMEOUT_S

PARTITIONS = 7
COUNT = 60


def produce(deployment: SidecarDeployment, records: Iterable[RequestRecord]) -> list[tuple[int, int]]:
    """Produces the records, and returns partition and offset of each, in order."""
    producer = Producer({"bootstrap.servers": deployment.bootstrap, "enable.idempotence": True})
    positions: dict[int, tuple[int, int]] = {}

    def acknowledged(index: int, error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        positions[index] = (message.partition() or 0, message.offset() or 0)

    for index, record in enumerate(records):
        producer.produce(**record, on_delivery=partial(acknowledged, index))
    assert producer.flush(WAIT_TIMEOUT_S) == 0
    return [positions[index] for index in range(len(positions))]


def answers(deployment: SidecarDeployment, requests: str, count: int) -> dict[str, VerdictRecord]:
    """Waits for `count` verdicts, and returns all by the origin that they answer. Fails if there are more."""
    reader = deployment.reader(f"{requests}.verdicts")
    try:
        reader.until(lambda: len(reader.records) >= count, f"{count} verdicts")
        read = [decode_verdict(seen.value) for seen in reader.to_end()]
    finally:
        reader.close()
    assert len(read) == count
    return {answer.origin: answer for answer in read}


def test_every_control_finds_its_message(deployment: SidecarDeployment) -> None:
    topic = RequestTopic(deployment.new_requests(PARTITIONS), PARTITIONS)
    target = deployment.new_target()
    sidecar = deployment.new_sidecar()
    sidecar.start()
    sidecar.wait_for_shards(PARTITIONS)
    ids = [f"order-{number}" for number in range(COUNT)]
    hour = timedelta(hours=1)
    at = datetime.now(UTC) + hour
    scheduled = produce(
        deployment, (topic.schedule(target, id, key="same", headers=[("a", None)], at=at, id=id) for id in ids)
    )
    assert len({partition for partition, _ in scheduled}) == PARTITIONS, "ids are spread"
    rescheduled, cancelled, by_origin = ids[0::3], ids[1::3], ids[2::3]
    origins = {id: topic.origin(*position) for id, position in zip(ids, scheduled, strict=True)}
    soon = timedelta(milliseconds=200)
    controls = [
        *((id, topic.reschedule(id=id, delay=soon)) for id in rescheduled),
        *((id, topic.cancel(id=id)) for id in cancelled),
        *((id, topic.cancel(origin=origins[id])) for id in by_origin),
    ]
    sent = produce(deployment, (record for _, record in controls))
    verdicts = answers(deployment, topic.name, COUNT)
    for (id, _), position in zip(controls, sent, strict=True):
        answer = verdicts[topic.origin(*position)]
        wanted = Verdict.RESCHEDULED if id in rescheduled else Verdict.CANCELLED
        assert (answer.verdict, answer.of) == (wanted, origins[id])
    deployment.wait_for_ends(2 * COUNT)
    reader = deployment.reader(target)
    arrived = reader.to_end()
    reader.close()
    assert sorted(seen.last(ID).decode() for seen in arrived) == sorted(rescheduled)
    for seen in arrived:
        assert (seen.key, seen.value, seen.headers[0]) == (b"same", seen.last(ID), ("a", None))
        assert seen.origin.decode() == origins[seen.last(ID).decode()]
        assert int(seen.last(DUE)) <= seen.timestamp_ms


def test_scheduling_an_id_again_replaces_it(deployment: SidecarDeployment) -> None:
    topic = RequestTopic(deployment.new_requests(PARTITIONS), PARTITIONS)
    target = deployment.new_target()
    sidecar = deployment.new_sidecar()
    sidecar.start()
    sidecar.wait_for_shards(PARTITIONS)
    hour, soon = timedelta(hours=1), timedelta(milliseconds=200)
    positions = produce(
        deployment,
        [
            topic.schedule(target, b"first", key=b"a", delay=hour, id="draft-1"),
            topic.schedule(target, b"second", key=b"b", delay=hour, id="draft-1"),
            topic.schedule(target, b"last", key=None, delay=soon, id="draft-1"),
        ],
    )
    first, second, last = (topic.origin(*position) for position in positions)
    verdicts = answers(deployment, topic.name, 2)
    assert [(verdicts[origin].verdict, verdicts[origin].of) for origin in (second, last)] == [
        (Verdict.REPLACED, first),
        (Verdict.REPLACED, second),
    ]
    deployment.wait_for_ends(3)
    reader = deployment.reader(target)
    assert [(seen.key, seen.value) for seen in reader.to_end()] == [(None, b"last")]
    reader.close()


def blocks(section: str, language: str) -> list[str]:
    """Returns the examples in a language from a section of the client guide."""
    _, _, text = (ROOT / "docs/client.md").read_text(encoding="utf-8").partition(f"\n## {section}\n")
    text = text.partition("\n## ")[0]
    assert text, f"docs/client.md has no section {section}"
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def here(deployment: SidecarDeployment, example: str) -> str:
    """Returns the example with the broker and topics of this test."""
    names = {
        "localhost:9092": deployment.bootstrap,
        "postdate.requests": deployment.requests[0],
        "reminders": deployment.targets[0],
    }
    for documented, name in names.items():
        example = example.replace(documented, name)
    return example


def run(example: str, names: dict[str, object]) -> None:
    """Runs an example with these names as its globals."""
    exec(example, names)  # noqa: S102  # the code is from the document


@pytest.fixture
def served(deployment: SidecarDeployment) -> SidecarDeployment:
    """A request topic as the documents assume it, its sidecar, and a target."""
    deployment.new_requests(4)
    deployment.new_target()
    sidecar = deployment.new_sidecar()
    sidecar.start()
    sidecar.wait_for_shards(4)
    return deployment


def test_the_examples_of_the_documents_in_python(served: SidecarDeployment) -> None:
    first, second, *_ = blocks("Python client", "python")
    reading, *_ = blocks("Verdicts", "python")
    names: dict[str, object] = {}
    run(here(served, first), names)
    moved = answers(served, served.requests[0], 1)
    run(second, names)
    verdicts = answers(served, served.requests[0], 2)
    assert [answer.verdict for answer in moved.values()] == ["rescheduled"]
    assert sorted(answer.verdict for answer in verdicts.values()) == ["cancelled", "rescheduled"]
    last = next(answer for answer in verdicts.values() if answer.verdict is Verdict.CANCELLED)
    _, value = encode_verdict(last.verdict, last.origin.encode(), b"order-9", (last.of or "").encode(), last.at_ms)
    message = SimpleNamespace(value=lambda: value)
    printed = io.StringIO()
    with redirect_stdout(printed):
        run(reading, {"message": message})
    assert printed.getvalue() == f"{last.of} will never be delivered, according to the answer to {last.origin}\n"


def test_the_examples_of_the_document_on_the_command_line(served: SidecarDeployment) -> None:
    origins: list[str] = []
    for block in blocks("Cancel, reschedule, replace", "sh"):
        if not block.startswith("postdate "):
            continue
        for line in here(served, block).splitlines():
            program, *arguments = shlex.split(line)
            assert program == "postdate"
            origins += postdate(*arguments, "--requests", served.requests[0]).splitlines()  # instead of the default
    sent, _, moved, _, cancelled = origins
    assert (moved, cancelled) == (f"rescheduled {sent}", f"cancelled {sent}")
