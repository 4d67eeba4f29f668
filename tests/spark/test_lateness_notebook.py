"""Goal: examples/notebook/lateness.ipynb audits and plots from its first cell to its last.

Method: handwritten requests and deliveries; Jupyter's client runs the notebook in a kernel.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from support.audits.forged_topics import Forged
from support.audits.small_spark import SHORT_LIVED_JAVA
from support.brokers.broker import RunningBroker
from support.deployments.sidecar_deployment import SidecarDeployment, new_deployment
from support.repository import ROOT

_NOTEBOOK = ROOT / "examples/notebook/lateness.ipynb"


@pytest.fixture
def deployment(broker: RunningBroker, tmp_path: Path) -> Iterator[SidecarDeployment]:
    with new_deployment(broker.bootstrap_servers, tmp_path) as made:
        yield made


def _read() -> Any:
    """Returns the stored notebook; nbformat has no types."""
    read: Any = nbformat.read
    return read(_NOTEBOOK, as_version=4)


@pytest.mark.timeout(900)
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning", "ignore::RuntimeWarning")
def test_the_notebook_audits_and_plots(
    deployment: SidecarDeployment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forged = Forged.on(deployment)
    for number in range(5):
        forged.sound(key=b"k%d" % number)
    forged.ask()
    monkeypatch.setenv("JDK_JAVA_OPTIONS", SHORT_LIVED_JAVA)
    monkeypatch.setenv("BOOTSTRAP", deployment.bootstrap)
    monkeypatch.setenv("REQUESTS", forged.requests)
    monkeypatch.setenv("STATE", str(tmp_path / "state"))
    notebook = _read()
    NotebookClient(notebook, timeout=600, kernel_name="python3").execute(cwd=str(tmp_path))
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    printed = "".join(output.text for output in outputs if output.output_type == "stream" and output.name == "stdout")
    assert "exit code 4\nverified requests 5\n" in printed
    assert "missing" in printed
    assert [output for output in outputs if "image/png" in output.get("data", {})]


def test_the_notebook_is_stored_without_results() -> None:
    for cell in _read().cells:
        assert not cell.get("outputs"), cell.id
