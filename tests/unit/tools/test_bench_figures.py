"""Goal: the results of a benchmark show the measured numbers, and mark each missed target.

Method: literal figures, and the table, the JSON and the chart of them.
"""

from __future__ import annotations

import io
import json
from xml.etree import ElementTree

import numpy as np
import pytest
from rich.console import Console

from postdate.tools.bench.cases import CASES
from postdate.tools.bench.chart import as_html
from postdate.tools.bench.figures import REFERENCE, TARGETS, gather, is_precise, percentiles
from postdate.tools.bench.report import as_json, print_table

_DRAIN = [{"records_per_s": 90.0, "of_copy_share": 0.9}, {"records_per_s": 110.0, "of_copy_share": 1.1}]
_SLOW = {"arrival_p50_ms": 4.0, "arrival_p99_ms": 21.0, "arrival_p99_9_ms": 50.0}
_FAST = {"arrival_p50_ms": 40.0, "arrival_p99_ms": 400.0, "arrival_p99_9_ms": 900.0}


def test_the_median_over_the_repeats_is_compared_with_the_target() -> None:
    rate, share = gather("drain", _DRAIN)
    assert (rate.median, rate.target, rate.is_met) == (100.0, None, None)
    assert (share.median, share.is_met) == (1.0, True)
    assert gather("drain", [{"of_copy_share": 0.99}])[0].is_met is False
    ratios = {"arrival_p50_of_raw_share": 1.1, "arrival_p99_of_raw_share": 1.3}
    assert [each.is_met for each in gather("steady 1000/s", [ratios])] == [True, False]


def test_percentiles_are_over_all_values() -> None:
    found = percentiles("commit", np.arange(1001, dtype=np.float64))
    assert found == pytest.approx(
        {"commit_p50_ms": 500.0, "commit_p99_ms": 990.0, "commit_p99_9_ms": 999.0, "commit_most_ms": 1000.0}
    )


def test_a_case_is_precise_once_its_median_is_known_to_a_tenth() -> None:
    steady = [{"of_copy_share": share, "records_per_s": 1.0} for share in (0.50, 0.51, 0.52)]
    assert is_precise(steady)
    assert not is_precise(steady[:1])
    assert not is_precise([{"of_copy_share": share} for share in (0.4, 0.5, 0.6)])
    assert is_precise([{"of_copy_share": share} for share in (0.4, 0.5, 0.6) * 6]), "more runs help"
    assert is_precise([{"memory_mb": 1.0}]), "nothing is compared"


def test_every_target_is_that_of_a_case() -> None:
    assert {case for case, _ in TARGETS} <= set(CASES)


def test_the_table_shows_missed_targets() -> None:
    written = io.StringIO()
    print_table(
        Console(file=written, width=120),
        gather("drain", [{"of_copy_share": 0.5}]) + gather("held", [{"memory_mb": 7.0}]),
    )
    rows = [line for line in written.getvalue().splitlines() if "│" in line]
    assert "0.5" in rows[0]
    assert "missed" in rows[0]
    assert "7" in rows[1]
    assert "met" in rows[1]
    assert REFERENCE in " ".join(written.getvalue().split()), "a target that is missed elsewhere says little"


def test_json_has_every_value_and_the_settings() -> None:
    expected_text = json.loads(as_json(gather("drain", _DRAIN), {"messages": 5}))
    assert expected_text["settings"] == {"messages": 5}
    assert expected_text["cases"]["drain"]["records_per_s"] == {
        "median": 100.0,
        "least": 90.0,
        "most": 110.0,
        "values": [90.0, 110.0],
    }
    assert expected_text["cases"]["drain"]["of_copy_share"]["met"] is True


def test_the_picture_has_a_point_for_each_load_and_percentile() -> None:
    figures = gather("steady 100/s", [_SLOW]) + gather("steady 10000/s", [_FAST]) + gather("drain", _DRAIN)
    page = as_html(figures)
    drawing = ElementTree.fromstring(page[page.index("<svg") : page.index("</svg>") + 6])  # noqa: S314  # our own text
    points = [(float(each.attrib["cx"]), float(each.attrib["cy"]), each[0].text) for each in drawing.iter("circle")]
    assert {text for _, _, text in points} == {
        *("100/s: 4.0 ms", "100/s: 21.0 ms", "100/s: 50.0 ms"),
        *("10000/s: 40.0 ms", "10000/s: 400.0 ms", "10000/s: 900.0 ms"),
    }
    least, most = min(points, key=lambda each: each[1]), max(points, key=lambda each: each[1])
    assert (least[2], most[2]) == ("10000/s: 900.0 ms", "100/s: 4.0 ms")
    assert most[0] < least[0]


def test_the_chart_of_one_load_names_each_line_and_shows_the_spread() -> None:
    again = {name: value * 1.1 for name, value in _SLOW.items()}
    page = as_html(gather("steady 3000/s", [_SLOW, again, _SLOW]))
    drawing = ElementTree.fromstring(page[page.index("<svg") : page.index("</svg>") + 6])  # noqa: S314  # our own text
    names = {each.text: float(each.attrib["y"]) for each in drawing.iter("text") if "class" in each.attrib}
    assert names["p99.9"] < names["p99"] < names["p50"]
    bars = [each for each in drawing.iter("line") if each.attrib["class"] != "grid"]
    assert len(bars) == 3
    places = [float(each.attrib[name]) for each in drawing.iter("circle") for name in ("cx", "cy")]
    assert all(0 < place < 720 for place in places)
    assert "<td>21.0</td>" in page
    assert "Medians of 3 runs" in page
