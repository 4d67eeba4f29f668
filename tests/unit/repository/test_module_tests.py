"""Goal: each module of the product leads to its tests.

Method: the rule is applied to this repository, and to a small one in which it is broken in every way.
"""

from __future__ import annotations

from pathlib import Path

from support.repository import ROOT
from support.tidiness.module_tests import module_complaints


def test_each_module_leads_to_its_tests() -> None:
    assert list(module_complaints(ROOT)) == []


def test_each_broken_rule_is_reported(tmp_path: Path) -> None:
    for place, text in {
        "sidecar/postdate/sidecar/dispatch/aborts.py": "",
        "sidecar/postdate/sidecar/dispatch/errors.py": "",
        "sidecar/postdate/sidecar/dispatch/parking.py": "",
        "sidecar/postdate/sidecar/dispatch/batch.py": "",
        "sidecar/postdate/sidecar/dispatch/lost.py": "",
        "wheel/postdate/wheel/listed.py": "",
        "tests/unit/sidecar/dispatch/test_aborts_late.py": "",
        "tests/unit/sidecar/dispatch/test_isolation.py": "from postdate.sidecar.dispatch import parking",
        "tests/integration/test_delivery.py": "import postdate.sidecar.dispatch.batch",
        "sidecar/postdate/sidecar/recovery.py": "",
        "sidecar/postdate/sidecar/seats.py": "",
        "sidecar/postdate/sidecar/http/bulk.py": "",
        "sidecar/postdate/cli/bulk.py": "",
        "sidecar/postdate/cli/delivery.py": "",
        "sidecar/postdate/cli/top.py": "",
        "tests/unit/sidecar/http/test_bulk.py": "from postdate.sidecar.http.bulk import plan",
        "tests/unit/sidecar/test_top.py": "",
        "tests/integration/test_recovery_halts.py": "",
        "tests/property/test_seats.py": "import postdate.sidecar.seats",
        "tests/README.md": (
            "| `postdate/wheel/listed.py` | [one](unit/sidecar/dispatch/test_isolation.py) |\n"
            "| `postdate/wheel/moved.py` | [one](unit/test_nowhere.py) |\n"
            "| `postdate/sidecar/dispatch/aborts.py` | [one](integration/test_delivery.py) |\n"
        ),
    }.items():
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).write_text(text)
    untested = "no test file of its package has its name or imports it: name one in tests/README.md"
    assert set(module_complaints(tmp_path)) == {
        f"postdate/cli/bulk.py: {untested}",
        f"postdate/cli/delivery.py: {untested}",
        f"postdate/cli/top.py: {untested}",
        f"postdate/sidecar/dispatch/batch.py: {untested}",
        f"postdate/sidecar/dispatch/lost.py: {untested}",
        f"postdate/sidecar/seats.py: {untested}",
        "tests/README.md: postdate/sidecar/dispatch/aborts.py leads to its tests already: remove the row",
        "tests/README.md: there is no postdate/wheel/moved.py",
        "tests/README.md: there is no unit/test_nowhere.py",
    }
