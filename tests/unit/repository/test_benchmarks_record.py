"""Goal: the record of a benchmark command contains its conditions, its output and its exit code, even if it fails."""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.conditions import ROOT
from benchmarks.record import main

_PROGRAM = "import os, sys; print(os.environ['DEPTH'], sys.argv[1], flush=True); sys.exit('no broker')"


def test_a_record_has_the_conditions_and_the_output_also_if_the_command_fails(tmp_path: Path) -> None:
    """Otherwise the records would omit runs that miss their aim."""
    code = main("deep", ["DEPTH=7", sys.executable, "-c", _PROGRAM, f"{ROOT}/tests"], tmp_path)
    head, output = (tmp_path / "deep.txt").read_text().split("\n\n", 1)
    named = dict(line.split(": ", 1) for line in head.splitlines())
    assert code == 1
    assert named["exit code"] == "1"
    assert named["command"].startswith("DEPTH=7 ")
    assert {"commit", "began", "machine", "load average", "seconds"} <= named.keys()
    assert output == "7 tests\nno broker\n"
