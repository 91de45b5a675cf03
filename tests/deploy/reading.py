"""The files that deploy the product, as values, with the command and the environment of each process."""

import re
import shlex
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from streaming.config.spellings import read_properties
from tests.system.waiting import HANG_S
from tests.tools import needed

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
BASE, EXECUTORS = DEPLOY / "kubernetes" / "base", DEPLOY / "kubernetes" / "executors"
STAND_BY = DEPLOY / "kubernetes" / "stand-by"
CHART, RENDERINGS = DEPLOY / "helm" / "groupcoord", ROOT / "tests" / "deploy" / "rendered"
RENDERED = {"default": [], "executors": ["executors.enabled=true"], "stand-by": ["coordinator.standBy=true"]}
"""The kept renderings of the chart, and their values."""

UNITS = sorted((DEPLOY / "systemd").glob("*.service"))


@dataclass(frozen=True)
class Started:
    """A process of the product that a deployment file starts.

    Args:
        where: The file, and the name of the process in it.
            command: The words of the command. The first word is `coordinator`.
            environment: All variables, with those of the image.
    """

    where: str
    command: list[str]
    environment: Mapping[str, str] = field(repr=False)

    def setting(self, name: str) -> str | None:
        return self.environment.get(f"COORDINATOR_{name.upper()}")


def dockerfile() -> list[str]:
    """Return the instructions of the Dockerfile, each on one line."""
    text = re.sub(r"^#.*\n", "", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE)
    return [line for line in text.replace("\\\n", " ").splitlines() if line.strip()]


def image_environment() -> dict[str, str]:
    [line] = [line for line in dockerfile() if line.startswith("ENV ")]
    return dict(word.split("=", 1) for word in shlex.split(line.removeprefix("ENV ")))  # type: ignore[misc]


def compose() -> dict[str, Any]:
    return dict(yaml.safe_load((ROOT / "docker-compose.yml").read_text()))


def ours() -> dict[str, dict[str, Any]]:
    """Return the services of docker-compose.yml that run the product's image."""
    return {name: each for name, each in compose()["services"].items() if "build" in each}


def manifests(folder: Path) -> list[dict[str, Any]]:
    """Return all objects of a folder that are applied to Kubernetes."""
    others = {"kustomization.yaml", *patch_files(folder)}
    files = [file for file in sorted(folder.glob("*.yaml")) if file.name not in others]
    return [each for file in files for each in yaml.safe_load_all(file.read_text())]


def patch_files(folder: Path) -> list[str]:
    return [each["path"] for each in kustomization(folder).get("patches", [])]


def driver_patch(folder: Path = EXECUTORS) -> dict[str, Any]:
    """Return the changes that an overlay makes to the spec of the coordinator's StatefulSet."""
    [file] = patch_files(folder)
    return dict(yaml.safe_load((folder / file).read_text())["spec"])


def spark_defaults() -> dict[str, str]:
    """Return the Spark options of the driver in the overlay with executors."""
    lines = (EXECUTORS / "spark-defaults.conf").read_text().splitlines()
    return dict(line.split(None, 1) for line in lines)  # type: ignore[misc]


def named(kind: str, name: str, folder: Path = BASE) -> dict[str, Any]:
    [found] = [each for each in manifests(folder) if (each["kind"], each["metadata"]["name"]) == (kind, name)]
    return found


def kustomization(folder: Path) -> dict[str, Any]:
    return dict(yaml.safe_load((folder / "kustomization.yaml").read_text()))


def generated() -> dict[str, dict[str, str]]:
    """Return the ConfigMaps that kustomize generates from env files, by name."""
    return {
        each["name"]: pairs((BASE / file).read_text())
        for each in kustomization(BASE)["configMapGenerator"]
        for file in each["envs"]
    }


def pairs(text: str) -> dict[str, str]:
    lines = (line for line in text.splitlines() if line.strip() and not line.startswith("#"))
    return dict(line.split("=", 1) for line in lines)  # type: ignore[misc]


def pods() -> dict[str, dict[str, Any]]:
    """Return the pod specs by name."""
    return {
        "coordinator": named("StatefulSet", "coordinator")["spec"]["template"]["spec"],
        "gateway": named("Deployment", "coordinator-gateway")["spec"]["template"]["spec"],
        "executor": yaml.safe_load((EXECUTORS / "executor.yaml").read_text())["spec"],
    }


def started() -> Iterator[Started]:
    """Yield every process of the product in all deployment files."""
    [command] = [line for line in dockerfile() if line.startswith("CMD ")]
    image = image_environment()
    yield Started("Dockerfile", yaml.safe_load(command.removeprefix("CMD ")), image)
    for name, service in ours().items():
        if service["command"][0] == "coordinator":
            yield Started(f"docker-compose.yml {name}", service["command"], image | service.get("environment", {}))
    for name in ("coordinator", "gateway"):
        [container] = pods()[name]["containers"]
        yield Started(f"kubernetes {name}", container["args"], image | container_environment(container))
    for kept in RENDERED:
        yield from chart_started(rendered(kept), f"helm {kept}")
    yield Started("yarn", ["coordinator", "run"], yarn_environment())
    for unit in UNITS:
        text = unit.read_text()
        [line] = re.findall(r"^ExecStart=/opt/coordinator/bin/(.*)$", text, re.MULTILINE)
        yield Started(unit.name, line.split(), dict(re.findall(r"^Environment=(\w+)=(.*)$", text, re.MULTILINE)))


def yarn_environment() -> dict[str, str]:
    """Return the variables of the application master."""
    properties = read_properties((DEPLOY / "yarn" / "coordinator.properties").read_text())
    of_master = "spark.yarn.appMasterEnv."
    return {key.removeprefix(of_master): value for key, value in properties.items() if key.startswith(of_master)}


def chart(*values: str, file: Path | None = None) -> str:
    """Return what Helm renders with these values in the place of the defaults.

    Args:
        file: A YAML file with more values.

    Raises:
        subprocess.CalledProcessError: Helm refuses a value; `stderr` has the reason.
    """
    command = [needed("helm"), "template", "groupcoord", str(CHART), "--namespace", "coordinator"]
    command += ["--kube-version", "1.37", *(word for each in values for word in ("--set", each))]
    command += ["--values", str(file)] if file else []
    return subprocess.run(command, capture_output=True, text=True, timeout=HANG_S, check=True).stdout


def rendered(name: str) -> list[dict[str, Any]]:
    """Return the objects of a kept rendering, so that most tests need no Helm."""
    return objects((RENDERINGS / f"{name}.yaml").read_text())


def objects(text: str) -> list[dict[str, Any]]:
    return [each for each in yaml.safe_load_all(text) if each]


def chart_started(found: list[dict[str, Any]], where: str) -> Iterator[Started]:
    """Yield the processes of a rendered chart."""
    maps = {each["metadata"]["name"]: each["data"] for each in found if each["kind"] == "ConfigMap"}
    for each in found:
        if each["kind"] in ("StatefulSet", "Deployment"):
            [container] = each["spec"]["template"]["spec"]["containers"]
            environment = container_environment(container, maps)
            yield Started(f"{where} {container['name']}", container["args"], image_environment() | environment)


def container_environment(
    container: Mapping[str, Any], config_maps: Mapping[str, dict[str, str]] | None = None
) -> dict[str, str]:
    maps = [(config_maps or generated())[each["configMapRef"]["name"]] for each in container["envFrom"]]
    variables = {each["name"]: each.get("value", "from a secret") for each in container["env"]}
    return {name: value for each in [*maps, variables] for name, value in each.items()}
