"""A real browser without a window, driven over the pipe of the Chrome DevTools protocol: pages are loaded, read, typed
into and photographed. Nothing but the program itself is needed.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from select import select
from typing import Any

from support.patience import PATIENCE_S
from support.programs import need_program

_FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-extensions",
    "--disable-background-networking",
    "--disable-component-update",
    "--remote-debugging-pipe",
)


class Page:
    """One tab. `complaints`: what scripts threw, and what the browser refused or warned of, so far."""

    def __init__(self, commands: int, answers: int) -> None:
        self._commands, self._answers = commands, answers
        self._rest = b""
        self._number = 0
        self._session = ""
        self.complaints: list[str] = []
        target = self._ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._ask(f"{domain}.enable")

    def open(self, url: str) -> None:
        self._ask("Page.navigate", url=url)

    def size(self, width: int, height: int, scheme: str) -> None:
        """Be a screen of this size, whose person likes `light` or `dark`."""
        phone = width < 600
        self._ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)
        self._ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def run(self, script: str) -> Any:
        """The value of an expression in the page."""
        told = self._ask("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in told, told["exceptionDetails"]
        return told["result"].get("value")

    def wait_for(self, script: str, what: str) -> None:
        """Returns when an expression is true."""
        deadline = time.monotonic() + PATIENCE_S
        while not self.run(script):
            assert time.monotonic() < deadline, f"{what}; the page says: {self.text('body')}; {self.complaints}"
            time.sleep(0.05)

    def text(self, selector: str) -> str:
        """What a person reads there."""
        return str(self.run(f"document.querySelector({json.dumps(selector)}).innerText"))

    def click(self, selector: str) -> None:
        self.run(f"document.querySelector({json.dumps(selector)}).click()")

    def fill(self, selector: str, text: str) -> None:
        self.run(f"document.querySelector({json.dumps(selector)}).value = {json.dumps(text)}")

    def press_enter(self, selector: str) -> None:
        """Focus the element, and press and release the Enter key as a keyboard does."""
        self.run(f"document.querySelector({json.dumps(selector)}).focus()")
        key = {"key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 13}
        self._ask("Input.dispatchKeyEvent", type="keyDown", text="\r", **key)
        self._ask("Input.dispatchKeyEvent", type="keyUp", **key)

    def photograph(self, path: Path) -> None:
        """The whole page as a PNG."""
        told = self._ask("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(told["data"]))

    def _ask(self, method: str, **params: object) -> dict[str, Any]:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while True:
            told = self._read()
            if told.get("id") == self._number:
                assert "error" not in told, told["error"]
                result: dict[str, Any] = told["result"]
                return result
            self._note(told)

    def _note(self, told: dict[str, Any]) -> None:
        params = told.get("params", {})
        if told.get("method") == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(params["exceptionDetails"]))
        elif told.get("method") == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.complaints.append(params["entry"]["text"])

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            ready, _, _ = select([self._answers], [], [], PATIENCE_S)
            assert ready, "the browser does not answer"
            piece = os.read(self._answers, 1 << 20)
            assert piece, "the browser has ended"
            self._rest += piece
        raw, _, self._rest = self._rest.partition(b"\0")
        told: dict[str, Any] = json.loads(raw)
        return told


@contextmanager
def browser_page(directory: Path) -> Iterator[Page]:
    """A page of a browser of its own, whose profile lies in `directory`; skips the test where there is none."""
    program = need_program("chromium", "chromium")
    command_end, commands = os.pipe()
    answers, answer_end = os.pipe()
    # The program reads commands at descriptor 3 and answers at 4, whatever numbers the pipes have here.
    shell = ["bash", "-c", f'exec "$@" 3<&{command_end} 4>&{answer_end}', "bash"]
    words = [*shell, program, *_FLAGS, f"--user-data-dir={directory}"]
    with (directory.parent / "browser.log").open("wb") as log:
        process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, pass_fds=(command_end, answer_end)
        )
    os.close(command_end)
    os.close(answer_end)
    try:
        yield Page(commands, answers)
    finally:
        os.close(commands)  # the browser ends with its pipe
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(PATIENCE_S)
        os.close(answers)
