"""Goal: the data of a process on disk and in memory is readable only by its user.

Method: directories with various modes, and a separate process that forbids core dumps and then crashes. The process is
separate since the ban cannot be undone.
"""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from postdate.sidecar.errors import ConfigError
from postdate.sidecar.privacy import prepare_data_directory

_CRASH = """
import ctypes, os, resource
from postdate.sidecar.privacy import forbid_core_dumps
resource.setrlimit(resource.RLIMIT_CORE, (resource.getrlimit(resource.RLIMIT_CORE)[1],) * 2)
forbid_core_dumps()
print(*resource.getrlimit(resource.RLIMIT_CORE), ctypes.CDLL(None).prctl(3), flush=True)  # PR_GET_DUMPABLE
os.abort()
"""


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_an_unusable_data_directory_is_a_configuration_error(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    for path in (file, file / "below"):
        with pytest.raises(ConfigError, match=r"cannot be used \(.*\): give another with --data"):
            prepare_data_directory(path)
    prepare_data_directory(tmp_path / "new" / "one")
    assert _mode(tmp_path / "new" / "one") == 0o700


@pytest.mark.parametrize("mode", [0o755, 0o770, 0o701, 0o2775])
def test_rights_of_others_are_removed_with_a_warning(
    tmp_path: Path, mode: int, caplog: pytest.LogCaptureFixture
) -> None:
    directory = tmp_path / "data"
    directory.mkdir()
    directory.chmod(mode)
    prepare_data_directory(directory)
    assert _mode(directory) == 0o700
    assert f"had mode {mode:04o}" in caplog.text
    caplog.clear()
    prepare_data_directory(directory)
    assert caplog.text == ""


def test_a_directory_whose_mode_may_not_be_changed_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = tmp_path / "data"
    directory.mkdir()
    directory.chmod(0o777)

    def refuse(path: Path, mode: int) -> None:
        raise PermissionError(1, "Operation not permitted", str(path))

    monkeypatch.setattr(Path, "chmod", refuse)  # root may change every directory, so the refusal is simulated
    with pytest.raises(ConfigError, match=r"has mode 0777 and belongs to user \d+: .* chmod it to 0700"):
        prepare_data_directory(directory)


def test_a_crash_leaves_no_core(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", _CRASH], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == -6, done.stderr
    assert done.stdout.split() == ["0", "0", "0"], "limits of a core, and whether the process may be dumped at all"
    assert os.listdir(tmp_path) == []
