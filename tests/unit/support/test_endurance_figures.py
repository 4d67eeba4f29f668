"""Goal: the figures of an endurance run are correct, and it reports every lost, repeated, early or wrongly delivered
message.

Method: uses the real plan, handwritten outcomes, and a sender and a reader with lists in place of the client library.
"""

from __future__ import annotations

import struct
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from benchmarks.endurance import arrivals, load
from benchmarks.endurance.figures import Figures, by_minute, counts, examples, lateness, trend
from benchmarks.endurance.plan import CANCEL, DELAY_MS_MIN, MESSAGE, MOVE, Outcomes, plan
from benchmarks.endurance.report import Run, markdown, write
from benchmarks.endurance.system import Sample

NOW_MS = 1_800_000_000_000
KILL_MS = NOW_MS + 60_000


@pytest.fixture
def outcomes(tmp_path: Path) -> Outcomes:
    """Returns five messages that arrived once and 10 ms late, and a cancelled one that did not arrive."""
    made = Outcomes(tmp_path, 6, create=True)
    made.due_ms[:] = [*(NOW_MS + 1_000 * number for number in range(5)), -1]
    made.arrived[:] = [1, 1, 1, 1, 1, 0]
    made.due_said_ms[:5], made.late_ms[:5] = made.due_ms[:5], 10
    return made


class TestPlan:
    def test_one_of_twenty_requests_is_a_control_and_acts_on_an_earlier_one_with_an_id(self) -> None:
        planned = list(plan(200, 4_000, 60_000, 1))
        for number, each in enumerate(planned):
            if each.kind == MESSAGE:
                assert DELAY_MS_MIN <= each.delay_ms <= 60_000
            else:
                assert planned[each.acts_on].has_id
                assert number - each.acts_on >= 200 * 5, "sent five seconds after the request"
                assert planned[each.acts_on].delay_ms >= 10_000, "due five seconds after the control"
        kinds = Counter(each.kind for each in planned)
        assert kinds[CANCEL] + kinds[MOVE] == pytest.approx(4_000 / 20, rel=0.3)
        assert kinds[MOVE] == pytest.approx(kinds[CANCEL] / 4, rel=0.1)

    def test_no_request_has_two_controls(self) -> None:
        acts_on = [each.acts_on for each in plan(200, 4_000, 60_000, 1) if each.kind != MESSAGE]
        assert len(acts_on) == len(set(acts_on))

    def test_the_plan_follows_from_the_seed(self) -> None:
        assert list(plan(100, 100, 60_000, 1)) == list(plan(100, 100, 60_000, 1))
        assert list(plan(100, 100, 60_000, 1)) != list(plan(100, 100, 60_000, 2))


class TestCounts:
    def test_a_correct_run_has_nothing_to_report(self, outcomes: Outcomes) -> None:
        found = counts(outcomes)
        assert (found["requests"], found["messages"]) == (6, 5)
        assert not any(found[name] for name in list(found)[2:])
        assert examples(outcomes) == []

    @pytest.mark.parametrize(
        ("name", "column", "number", "value"),
        [
            ("not sent", "due_ms", 0, 0),
            ("lost", "arrived", 1, 0),
            ("repeated", "arrived", 2, 2),
            ("delivered although cancelled", "arrived", 5, 1),
            ("with another due time", "due_said_ms", 3, NOW_MS),
            ("early", "late_ms", 4, -1),
        ],
    )
    def test_each_violation_is_counted(
        self, outcomes: Outcomes, name: str, column: str, number: int, value: int
    ) -> None:
        getattr(outcomes, column)[number] = value
        assert counts(outcomes)[name] == 1

    def test_an_example_names_the_request(self, outcomes: Outcomes) -> None:
        outcomes.arrived[2] = 2
        (said,) = examples(outcomes)
        assert said.startswith("request 2: ")
        assert "arrived 2 times" in said


class TestLateness:
    def test_messages_due_around_a_kill_count_only_in_all(self, outcomes: Outcomes) -> None:
        outcomes.due_ms[:5] = [KILL_MS - 2_000, KILL_MS - 500, KILL_MS, KILL_MS + 29_999, KILL_MS + 30_000]
        outcomes.late_ms[:5] = [1, 2_000, 3_000, 4_000, 5]
        found = lateness(outcomes, [KILL_MS])
        assert (found["all"]["messages"], found["all"]["max"]) == (5, 4_000)
        assert (found["apart from kills"]["messages"], found["apart from kills"]["max"]) == (2, 5)

    def test_without_messages_apart_from_kills_there_are_no_percentiles(self, outcomes: Outcomes) -> None:
        assert lateness(outcomes, [NOW_MS])["apart from kills"]["p99"] is None

    def test_each_minute_has_separate_percentiles(self, outcomes: Outcomes) -> None:
        outcomes.due_ms[4] = NOW_MS + 61_000
        outcomes.late_ms[4] = 99
        assert [(each["minute"], each["max"]) for each in by_minute(outcomes, NOW_MS)] == [(0, 10), (1, 99)]


class TestTrend:
    @staticmethod
    def samples(memory_mb: tuple[float, float]) -> list[Sample]:
        """Returns samples over 900 s, with the given memory before and after 600 s."""
        return [
            Sample(at_s, "a", memory_mb[at_s >= 600], files=50, disk_mb=100.0, pending=1_000)
            for at_s in range(0, 900, 10)
        ]

    def test_a_change_within_a_tenth_is_flat(self) -> None:
        assert trend(self.samples((100.0, 109.0)), 0, 900)["memory_mb"]["flat"] == "yes"

    def test_a_larger_change_is_not_flat(self) -> None:
        found = trend(self.samples((100.0, 111.0)), 0, 900)
        assert (found["memory_mb"]["before"], found["memory_mb"]["after"]) == (100.0, 111.0)
        assert (found["memory_mb"]["flat"], found["files"]["flat"]) == ("no", "yes")


class TestPrograms:
    def test_a_cancelled_request_must_not_arrive_and_a_moved_one_at_its_new_time(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        sent: list[tuple[bytes | None, int, dict[str, bytes]]] = []

        class Producer:
            def __init__(self, _conf: object) -> None: ...

            def produce(
                self, _topic: str, value: bytes | None, _key: bytes, partition: int, headers: list[tuple[str, bytes]]
            ) -> None:
                sent.append((value, partition, dict(headers)))

        monkeypatch.setattr(load, "Producer", Producer)
        outcomes, planned = Outcomes(tmp_path, 4_000, create=True), list(plan(200, 4_000, 60_000, 1))
        sender = load.Sender("nowhere", ("requests", "target"), 8, outcomes)
        for number, each in enumerate(planned):
            sender.send(number, each, NOW_MS)
        for number, each in enumerate(planned):
            value, partition, headers = sent[number]
            if each.kind == MESSAGE:
                assert value is not None
                assert struct.unpack_from("<qq", value) == (number, int(headers["postdate-at"]))
                continue
            assert outcomes.due_ms[number] == -1
            assert partition == sent[each.acts_on][1]
            assert headers["postdate-id"] == sent[each.acts_on][2]["postdate-id"]
            left = outcomes.due_ms[each.acts_on]
            assert left == (-1 if each.kind == CANCEL else NOW_MS + each.delay_ms)

    def test_each_arrival_counts_and_the_first_one_is_timed(self, outcomes: Outcomes) -> None:
        class Message:
            def value(self) -> bytes:
                return struct.pack("<qq", 5, 0)

            def headers(self) -> list[tuple[str, bytes]]:
                return [("postdate-due", b"%d" % NOW_MS)]

        arrivals.note(outcomes, [Message(), Message()], NOW_MS + 7)
        arrivals.note(outcomes, [Message()], NOW_MS + 9)
        assert (outcomes.arrived[5], outcomes.due_said_ms[5], outcomes.late_ms[5]) == (3, NOW_MS, 7)
        for _ in range(300):
            arrivals.note(outcomes, [Message()], NOW_MS)
        assert outcomes.arrived[5] == 255


def test_the_page_names_each_violation(tmp_path: Path, outcomes: Outcomes) -> None:
    outcomes.arrived[1] = 0
    figures: dict[str, Figures] = {"all": {"messages": 1, "p50": 1.0}}
    run = Run(
        {"command": "it"}, counts(outcomes), examples(outcomes), figures, [], figures, [1.0], {"broker": 0.5}, 3.0,
        "clean", ["1 lost"], [],
    )  # fmt: skip
    write(run, tmp_path / "new/page.md")
    page = (tmp_path / "new/page.md").read_text()
    assert page == markdown(run, "page.json")
    assert "- **Wrong**: 1 lost" in page
    assert "request 1: " in page
    assert (tmp_path / "new/page.json").read_text().startswith('{"command": "it"')


def test_arrays_are_shared_by_the_programs(tmp_path: Path) -> None:
    written, read = Outcomes(tmp_path, 3, create=True), Outcomes(tmp_path, 3)
    written.late_ms[2] = np.float32(1.5)
    assert read.late_ms.tolist() == [0, 0, 1.5]
