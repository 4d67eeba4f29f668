"""Goal: a local file is replaced atomically, so that a reader sees either the old file or the new one.

Method: reads real files while they are replaced. Also writes to a directory that takes no further file, and to a path
that is not a file. No Spark runs, since a local path does not need it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from postdate.spark.errors import CannotRun
from postdate.spark.session.output_paths import write_text

NO_SPARK: Any = None


def test_a_reader_of_the_old_file_reads_it_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "audit.prom"
    write_text(NO_SPARK, str(path), "old " * 10_000)
    with path.open() as reader:
        assert reader.read(4) == "old "
        write_text(NO_SPARK, str(path), "new")
        assert reader.read() == "old " * 9_999
    assert path.read_text() == "new"
    assert os.listdir(tmp_path) == ["audit.prom"]


def test_other_users_may_read_the_file(tmp_path: Path) -> None:
    """node_exporter runs as another user."""
    (tmp_path / "plain").write_text("")
    write_text(NO_SPARK, str(tmp_path / "audit.prom"), "")
    assert (tmp_path / "audit.prom").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_a_symbolic_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to("real")
    write_text(NO_SPARK, str(tmp_path / "link"), "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "new"


def test_a_path_that_is_not_a_file_is_written_to_directly() -> None:
    """An example is /dev/stdout, which leads to an unnamed pipe."""
    reader, writer = os.pipe()
    try:
        write_text(NO_SPARK, f"/dev/fd/{writer}", "said")
        assert os.read(reader, 10) == b"said"
    finally:
        os.close(reader)
        os.close(writer)


def test_the_error_names_a_place_that_takes_no_file(tmp_path: Path) -> None:
    with pytest.raises(CannotRun, match=r"nowhere/audit\.prom cannot be written"):
        write_text(NO_SPARK, str(tmp_path / "nowhere" / "audit.prom"), "")
