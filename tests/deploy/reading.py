"""The files that deploy the product, as values, with the command and the environment of each process."""

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
BASE, EXECUTORS = DEPLOY / "kubernetes" / "base", DEPLOY / "kubernetes" / "executors"
CHART, RENDERED = DEPLOY / "helm" / "groupcoord", ROOT / "tests" / "deploy" / "chart.yaml"
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


def driver_patch() -> dict[str, Any]:
    """Return the changes that the overlay with executors makes to the spec of the coordinator's StatefulSet."""
    [file] = patch_files(EXECUTORS)
    return dict(yaml.safe_load((EXECUTORS / file).read_text())["spec"])


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
    for name, pod in chart_pods().items():
        [container] = pod["containers"]
        maps = {each["metadata"]["name"]: each["data"] for each in chart() if each["kind"] == "ConfigMap"}
        yield Started(f"helm {name}", container["args"], image | container_environment(container, maps))
    for unit in UNITS:
        text = unit.read_text()
        [line] = re.findall(r"^ExecStart=/opt/coordinator/bin/(.*)$", text, re.MULTILINE)
        yield Started(unit.name, line.split(), dict(re.findall(r"^Environment=(\w+)=(.*)$", text, re.MULTILINE)))


def chart() -> list[dict[str, Any]]:
    """Return the objects of the Helm chart with its default values, as `test_chart.py` keeps them."""
    return list(yaml.safe_load_all(RENDERED.read_text()))


def chart_pods() -> dict[str, dict[str, Any]]:
    """Return the pod specs of the Helm chart by name."""
    return {
        each["metadata"]["name"]: each["spec"]["template"]["spec"]
        for each in chart()
        if each["kind"] in ("StatefulSet", "Deployment")
    }


def container_environment(
    container: Mapping[str, Any], by_name: Mapping[str, Mapping[str, str]] | None = None
) -> dict[str, str]:
    """Return all variables of a container.

    Args:
        by_name: The ConfigMaps; by default those that kustomize generates.
    """
    maps = [(by_name or generated())[each["configMapRef"]["name"]] for each in container["envFrom"]]
    variables = {each["name"]: each.get("value", "from a secret") for each in container["env"]}
    return {name: value for each in [*maps, variables] for name, value in each.items()}
