"""Pods of the chart, run by Docker as the kubelet would run them: image, command, variables, mounts and the whole
security context come from the rendered objects.

All pods share the network of the broker's container, as with the host network of a node. So they reach the broker at
127.0.0.1, and each pod needs a different port. Secrets and ConfigMaps become directories, and claims become volumes.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.waiting.timeouts import WAIT_TIMEOUT_S

_DATA = "data"


def docker(*arguments: str, timeout_s: float = WAIT_TIMEOUT_S, check: bool = True) -> str:
    """Returns the output of a docker command; if it fails, the test fails with its error output."""
    done = subprocess.run(["docker", *arguments], capture_output=True, text=True, timeout=timeout_s, check=False)
    assert done.returncode == 0 or not check, f"docker {' '.join(arguments)}: {done.stderr or done.stdout}"
    return done.stdout.strip()


@dataclass
class Pod:
    """One container of a pod's specification. `files`: the content of each ConfigMap and Secret, by the object's
    name."""

    name: str
    spec: Mapping[str, Any]
    files: Mapping[str, Mapping[str, str]]
    network: str
    container: int = 0
    _directory: tempfile.TemporaryDirectory[str] = field(init=False)

    def __post_init__(self) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="postdate-pod-")

    def start(self) -> None:
        """Starts the container in the background."""
        docker("run", "--detach", "--name", self.name, *self._options(), *self._command())

    def run(self) -> str:
        """Runs the container to its end, which must succeed; returns its output."""
        return docker("run", "--rm", "--name", self.name, *self._options(), *self._command())

    def probe(self, kind: str) -> tuple[int, str]:
        """Sends the request of a probe (startup, liveness or readiness); returns status and text, 0 if there is no
        response."""
        container = self.spec["containers"][self.container]
        get = container[f"{kind}Probe"]["httpGet"]
        (port,) = [each["containerPort"] for each in container["ports"] if each["name"] == get["port"]]
        return self.ask(f"http://127.0.0.1:{port}{get['path']}")

    def ask(self, url: str, token: str = "") -> tuple[int, str]:
        """Sends a request from inside the pod; returns status and text, 0 if there is no response."""
        program = (
            "import sys, urllib.request, urllib.error\n"
            "ask = urllib.request.Request(sys.argv[1], headers={'Authorization': 'Bearer ' + sys.argv[2]})\n"
            "try:\n    answer = urllib.request.urlopen(ask, timeout=10)\n"
            "except urllib.error.HTTPError as error:\n    answer = error\n"
            "except OSError as error:\n    sys.exit(print('0', error, end=''))\n"
            "print(answer.status, answer.read().decode(), end='')"
        )
        status, _, text = docker("exec", self.name, "python", "-c", program, url, token).partition(" ")
        return int(status), text

    def logs(self) -> str:
        done = subprocess.run(["docker", "logs", self.name], capture_output=True, text=True, check=False)
        return done.stdout + done.stderr

    def kill(self) -> None:
        """Sends SIGKILL; the container and its volume remain."""
        docker("kill", "--signal", "KILL", self.name)

    def stop(self) -> int:
        """Sends SIGTERM, and SIGKILL after the grace period; returns the exit code."""
        docker("stop", "--time", str(self.spec.get("terminationGracePeriodSeconds", 30)), self.name)
        return int(docker("inspect", "--format", "{{.State.ExitCode}}", self.name))

    def remove(self) -> None:
        """Removes the container, the volume and the files, if they exist."""
        docker("rm", "--force", "--volumes", self.name, check=False)
        docker("volume", "rm", "--force", f"{self.name}-{_DATA}", check=False)
        self._directory.cleanup()

    def _command(self) -> Sequence[str]:
        container = self.spec["containers"][self.container]
        return [container["image"], *container.get("command", []), *container.get("args", [])]

    def _options(self) -> list[str]:
        container, pod = self.spec["containers"][self.container], self.spec["securityContext"]
        context = container["securityContext"]
        options = ["--network", self.network, "--user", f"{pod['runAsUser']}:{pod['runAsGroup']}"]
        options += ["--read-only"] if context["readOnlyRootFilesystem"] else []
        options += ["--security-opt", "no-new-privileges"] if not context["allowPrivilegeEscalation"] else []
        options += [option for each in context["capabilities"]["drop"] for option in ("--cap-drop", each)]
        options += ["--memory", _bytes(container["resources"]["limits"]["memory"])]
        for name, value in self._variables(container).items():
            options += ["--env", f"{name}={value}"]
        volumes = {each["name"]: each for each in self.spec["volumes"]}
        for mount in container.get("volumeMounts", []):
            options += self._mount(mount, volumes.get(mount["name"]))
        if "command" in container:
            options += ["--entrypoint", ""]
        return options

    def _variables(self, container: Mapping[str, Any]) -> dict[str, str]:
        """Returns the variables, with fields of the pod and references to earlier variables replaced by their
        values."""
        fields = {"metadata.name": self.name, "metadata.namespace": "messaging"}
        made: dict[str, str] = {}
        for each in container.get("env", []):
            value = each["value"] if "value" in each else fields[each["valueFrom"]["fieldRef"]["fieldPath"]]
            for name, earlier in made.items():
                value = value.replace(f"$({name})", earlier)
            made[each["name"]] = value
        return made

    def _mount(self, mount: Mapping[str, Any], volume: Mapping[str, Any] | None) -> list[str]:
        path = mount["mountPath"]
        if volume is None:  # a claim
            return ["--volume", f"{self.name}-{mount['name']}:{path}"]
        if "emptyDir" in volume:
            return ["--tmpfs", f"{path}:mode=1777"]
        source = volume.get("configMap", {}).get("name") or volume["secret"]["secretName"]
        keys = {item["key"]: item["path"] for item in volume.get("secret", {}).get("items", [])}
        directory = Path(self._directory.name, mount["name"])
        directory.mkdir(exist_ok=True)
        for key, text in self.files[source].items():
            directory.joinpath(keys.get(key, key)).write_text(text)
        return ["--volume", f"{directory}:{path}:ro"]


def _bytes(quantity: str) -> str:
    """Returns a Kubernetes quantity in Docker's notation."""
    return quantity.removesuffix("i").lower()


def image_config(image: str) -> dict[str, Any]:
    """Returns the configuration of an image: user, entry point, variables, labels."""
    found: dict[str, Any] = json.loads(docker("image", "inspect", "--format", "{{json .Config}}", image))
    return found
