"""Goal: records of `postdate.client` have their documented effect on a real cluster, through a producer with another
partitioner. The examples of the documents work.

Method: confluent-kafka with its default partitioner, which hashes unlike Java's, and one real sidecar over seven
partitions. Each id is scheduled, and then left, moved or cancelled; every verdict and every delivery is compared with
what was asked.
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


def produce(env: SidecarDeployment, records: Iterable[RequestRecord]) -> list[tuple[int, int]]:
    """Partition and offset of each record, in order."""
    producer = Producer({"bootstrap.servers": env.bootstrap, "enable.idempotence": True})
    places: dict[int, tuple[int, int]] = {}

    def note(index: int, error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        places[index] = (message.partition() or 0, message.offset() or 0)

    for index, record in enumerate(records):
        producer.produce(**record, on_delivery=partial(note, index))
    assert producer.flush(WAIT_TIMEOUT_S) == 0
    return [places[index] for index in range(len(places))]


def answers(env: SidecarDeployment, requests: str, count: int) -> dict[str, VerdictRecord]:
    """The verdicts on a request topic by the origin they answer."""
    reader = env.reader(f"{requests}.verdicts")
    try:
        reader.until(lambda: len(reader.records) >= count, f"{count} verdicts")
        read = [decode_verdict(seen.value) for seen in reader.to_end()]
    finally:
        reader.close()
    assert len(read) == count
    return {answer.origin: answer for answer in read}


def test_every_control_finds_its_message(env: SidecarDeployment) -> None:
    topic = RequestTopic(env.new_requests(PARTITIONS), PARTITIONS)
    target = env.new_target()
    sidecar = env.new_sidecar()
    sidecar.start()
    sidecar.wait_for_shards(PARTITIONS)
    ids = [f"order-{number}" for number in range(COUNT)]
    hour = timedelta(hours=1)
    at = datetime.now(UTC) + hour
    scheduled = produce(
        env, (topic.schedule(target, id, key="same", headers=[("a", None)], at=at, id=id) for id in ids)
    )
    assert len({partition for partition, _ in scheduled}) == PARTITIONS, "ids are spread"
    left, cancelled, by_origin = ids[0::3], ids[1::3], ids[2::3]
    origins = {id: topic.origin(*place) for id, place in zip(ids, scheduled, strict=True)}
    soon = timedelta(milliseconds=200)
    controls = [
        *((id, topic.reschedule(id=id, delay=soon)) for id in left),
        *((id, topic.cancel(id=id)) for id in cancelled),
        *((id, topic.cancel(origin=origins[id])) for id in by_origin),
    ]
    asked = produce(env, (record for _, record in controls))
    verdicts = answers(env, topic.name, COUNT)
    for (id, _), place in zip(controls, asked, strict=True):
        answer = verdicts[topic.origin(*place)]
        wanted = Verdict.RESCHEDULED if id in left else Verdict.CANCELLED
        assert (answer.verdict, answer.of) == (wanted, origins[id])
    env.wait_for_ends(2 * COUNT)
    reader = env.reader(target)
    arrived = reader.to_end()
    reader.close()
    assert sorted(seen.last(ID).decode() for seen in arrived) == sorted(left)
    for seen in arrived:
        assert (seen.key, seen.value, seen.headers[0]) == (b"same", seen.last(ID), ("a", None))
        assert seen.origin.decode() == origins[seen.last(ID).decode()]
        assert int(seen.last(DUE)) <= seen.timestamp_ms


def test_scheduling_an_id_again_replaces_it(env: SidecarDeployment) -> None:
    topic = RequestTopic(env.new_requests(PARTITIONS), PARTITIONS)
    target = env.new_target()
    sidecar = env.new_sidecar()
    sidecar.start()
    sidecar.wait_for_shards(PARTITIONS)
    hour, soon = timedelta(hours=1), timedelta(milliseconds=200)
    places = produce(
        env,
        [
            topic.schedule(target, b"first", key=b"a", delay=hour, id="draft-1"),
            topic.schedule(target, b"second", key=b"b", delay=hour, id="draft-1"),
            topic.schedule(target, b"last", key=None, delay=soon, id="draft-1"),
        ],
    )
    first, second, last = (topic.origin(*place) for place in places)
    verdicts = answers(env, topic.name, 2)
    assert [(verdicts[each].verdict, verdicts[each].of) for each in (second, last)] == [
        (Verdict.REPLACED, first),
        (Verdict.REPLACED, second),
    ]
    env.wait_for_ends(3)
    reader = env.reader(target)
    assert [(seen.key, seen.value) for seen in reader.to_end()] == [(None, b"last")]
    reader.close()


def blocks(section: str, language: str) -> list[str]:
    """The examples of a section of the client guide in a language."""
    _, _, text = (ROOT / "docs/client.md").read_text(encoding="utf-8").partition(f"\n## {section}\n")
    text = text.partition("\n## ")[0]
    assert text, f"docs/client.md has no section {section}"
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def here(env: SidecarDeployment, example: str) -> str:
    """The example with the names of this test."""
    places = {"localhost:9092": env.bootstrap, "postdate.requests": env.requests[0], "reminders": env.targets[0]}
    for shown, meant in places.items():
        example = example.replace(shown, meant)
    return example


def run(example: str, names: dict[str, object]) -> None:
    """Runs an example where these names are known."""
    exec(example, names)  # noqa: S102  # it is the document's


@pytest.fixture
def served(env: SidecarDeployment) -> SidecarDeployment:
    """A request topic as the documents assume it, and a target."""
    env.new_requests(4)
    env.new_target()
    sidecar = env.new_sidecar()
    sidecar.start()
    sidecar.wait_for_shards(4)
    return env


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
    said = SimpleNamespace(value=lambda: value)
    printed = io.StringIO()
    with redirect_stdout(printed):
        run(reading, {"message": said})
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
