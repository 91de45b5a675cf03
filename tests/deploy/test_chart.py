"""The Helm chart starts what the kustomize base starts, and refuses bad values.

`chart.yaml` has the objects of the default values. After an intended change,
`UPDATE_GOLDEN=1 pytest tests/deploy/test_chart.py` writes it again.
"""

import copy
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from streaming import __version__
from tests.deploy import reading
from tests.deploy.reading import BASE, CHART, RENDERED
from tests.tools import needed, needs

NAMESPACE = reading.kustomization(BASE)["namespace"]
DIGEST = "sha256:" + "0" * 64


def render(*options: str) -> "subprocess.CompletedProcess[str]":
    """Render the chart under the names of the kustomize base."""
    command = [
        needed("helm"),
        "template",
        "coordinator",
        str(CHART),
        "--namespace",
        NAMESPACE,
        "--kube-version",
        "1.37",
    ]
    return subprocess.run([*command, *options], capture_output=True, text=True, timeout=60, check=False)


def values() -> dict[str, Any]:
    return dict(yaml.safe_load((CHART / "values.yaml").read_text()))


@needs("helm")
def test_kept_objects_are_those_of_the_chart() -> None:
    done = render()
    assert done.returncode == 0, done.stderr
    if os.environ.get("UPDATE_GOLDEN"):
        RENDERED.write_text(done.stdout)
    assert RENDERED.read_text() == done.stdout


@needs("helm")
def test_values_change_the_objects(tmp_path: Path) -> None:
    mine = {
        "image": {"repository": "registry/groupcoord", "digest": DIGEST},
        "gateway": {"broker_ids": [7], "service_type": "LoadBalancer", "advertised_host": "kafka.example.org"},
        "checkpoint": {"storage_class": "fast"},
        "settings": {"group_initial_rebalance_delay_ms": "3000"},
    }
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(mine))
    objects = {
        (o["kind"], o["metadata"]["name"]): o
        for o in yaml.safe_load_all(render("-f", str(tmp_path / "mine.yaml")).stdout)
    }
    stateful = objects["StatefulSet", "coordinator"]["spec"]
    assert stateful["template"]["spec"]["containers"][0]["image"] == f"registry/groupcoord@{DIGEST}"
    assert stateful["volumeClaimTemplates"][0]["spec"]["storageClassName"] == "fast"
    service = objects["Service", "coordinator-gateway"]["spec"]
    assert (service["type"], [port["port"] for port in service["ports"]]) == ("LoadBalancer", [9192, 9200])
    settings = objects["ConfigMap", "coordinator-settings"]["data"]
    assert settings["COORDINATOR_GROUP_INITIAL_REBALANCE_DELAY_MS"] == "3000"
    gateway = objects["ConfigMap", "coordinator-gateway-settings"]["data"]
    assert gateway["COORDINATOR_GATEWAY_ADVERTISED_HOST"] == "kafka.example.org"


@needs("helm")
def test_without_gateways_the_chart_has_nothing_of_them() -> None:
    done = render("--set", "gateway.enabled=false", "--set", "network_policy=false")
    kinds = [each["kind"] for each in yaml.safe_load_all(done.stdout)]
    assert sorted(kinds) == ["ConfigMap", "Service", "StatefulSet"]


@needs("helm")
def test_helm_names_a_bad_value() -> None:
    done = render("--set", "gateway.replicas=0")
    assert done.returncode == 1
    assert "/gateway/replicas" in done.stderr


def test_chart_has_the_version_of_the_product() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (__version__, __version__)


def test_objects_match_the_schemas_of_kubernetes() -> None:
    for each in reading.chart():
        for version in ("1.37", "1.29"):
            kubernetes_validate.validate(each, version, strict=True)


def test_schema_accepts_the_default_values() -> None:
    jsonschema.validate(values(), json.loads((CHART / "values.schema.json").read_text()))


@pytest.mark.parametrize(
    ("part", "bad"),
    [
        ("settings", {"bootstrap_servers": "kafka:9093", "sasl_password": "secret"}),
        ("settings", {"bootstrap_servers": "kafka:9093", "health_port": "9191"}),
        ("settings", {"bootstrap_servers": "kafka:9093", "request_partitions": 4}),
        ("settings", {}),
        ("image", {"repository": "groupcoord", "digest": "latest"}),
        ("gateway", {"replicas": 0}),
        ("gateway", {"broker_ids": [1, 1]}),
        ("gateway", {"replica": 1}),
        ("checkpoint", {"size": "10"}),
        ("kafka", {"secret": "Not a name", "ca_config_map": "ca", "port": 9093}),
        ("network_policy", "yes"),
        ("unknown", {}),
    ],
)
def test_schema_refuses(part: str, bad: Any) -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(values() | {part: bad}, schema)


# -- the same objects as kustomize -------------------------------------------------------------------------------------


def plain(each: dict[str, Any]) -> dict[str, Any]:
    """Return an object without what differs between the two tools: labels, checksums, and defaults that one writes."""
    kept = copy.deepcopy(each)
    kept["metadata"] = {"name": kept["metadata"]["name"]}
    spec = kept.get("spec", {})
    spec.pop("type", None)
    if template := spec.get("template"):
        name = template["metadata"]["labels"]["app.kubernetes.io/name"]
        template["metadata"]["labels"] = {"app.kubernetes.io/name": name}
        template["metadata"]["annotations"].pop("checksum/settings", None)
        for container in template["spec"]["containers"]:
            container.pop("imagePullPolicy", None)
            container["image"] = container["image"].partition(":")[0]
    return kept


def test_workloads_and_services_are_those_of_the_kustomize_base() -> None:
    kinds = ("StatefulSet", "Deployment", "Service", "PodDisruptionBudget")
    ours = {(o["kind"], o["metadata"]["name"]): plain(o) for o in reading.chart() if o["kind"] in kinds}
    theirs = {(o["kind"], o["metadata"]["name"]): plain(o) for o in reading.manifests(BASE) if o["kind"] in kinds}
    assert ours == theirs


def test_settings_are_those_of_the_kustomize_base() -> None:
    ours = {o["metadata"]["name"]: o["data"] for o in reading.chart() if o["kind"] == "ConfigMap"}
    assert ours == reading.generated()
