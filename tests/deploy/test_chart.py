"""The Helm chart: by default it gives the objects of the kustomize base, and it refuses invalid values.

The folder `rendered` keeps what Helm renders. After an intended change,
`UPDATE_GOLDEN=1 pytest tests/deploy/test_chart.py` writes it again.
"""

import os
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from streaming import __version__
from tests.deploy import reading
from tests.deploy.reading import BASE, CHART, EXECUTORS, RENDERED, RENDERINGS, STAND_BY
from tests.tools import needs

Object = dict[str, Any]
DIGEST = "sha256:" + "0a" * 32


def by_name(objects: list[Object]) -> dict[tuple[str, str], Object]:
    """Return objects by kind and name, without the labels, annotations and image names that differ by design."""
    found = {}
    for each in objects:
        metadata = {name: value for name, value in each["metadata"].items() if name not in ("labels", "namespace")}
        template = each.get("spec", {}).get("template")
        if template is not None:
            template["metadata"]["annotations"].pop("checksum/settings", None)
            for container in template["spec"]["containers"]:
                container["image"] = container["image"].partition(":")[0]
        found[each["kind"], metadata["name"]] = {**each, "metadata": metadata}
    return found


def of_kustomize() -> list[Object]:
    """Return the objects of the base with its generated ConfigMaps, without the Namespace that Helm itself creates."""
    maps = [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}
        for name, data in reading.generated().items()
    ]
    return [each for each in reading.manifests(BASE) if each["kind"] != "Namespace"] + maps


@needs("helm")
@pytest.mark.parametrize("name", RENDERED)
def test_kept_renderings_are_those_of_the_chart(name: str) -> None:
    kept, found = RENDERINGS / f"{name}.yaml", reading.chart(*RENDERED[name])
    if os.environ.get("UPDATE_GOLDEN"):
        kept.write_text(found)
    assert kept.read_text() == found


def test_the_default_chart_has_the_objects_of_the_base() -> None:
    assert by_name(reading.rendered("default")) == by_name(of_kustomize())


def test_the_chart_with_executors_has_the_objects_of_the_overlay() -> None:
    rendered, base = by_name(reading.rendered("executors")), by_name(of_kustomize())
    config = rendered.pop(("ConfigMap", "spark-defaults"))["data"]
    driver = rendered.pop(("StatefulSet", "coordinator"))
    del base["StatefulSet", "coordinator"]
    overlay = [each for each in reading.manifests(EXECUTORS) if each["kind"] != "Pod"]
    assert rendered == base | by_name(overlay)
    assert_within(reading.driver_patch(), driver["spec"])
    lines = config["spark-defaults.conf"].splitlines()
    assert dict(line.split(None, 1) for line in lines) == reading.spark_defaults()
    assert yaml.safe_load(config["executor.yaml"]) == yaml.safe_load((EXECUTORS / "executor.yaml").read_text())


def test_the_chart_with_a_stand_by_has_the_objects_of_the_overlay() -> None:
    rendered, base = by_name(reading.rendered("stand-by")), by_name(of_kustomize())
    driver = rendered.pop(("StatefulSet", "coordinator"))
    del base["StatefulSet", "coordinator"]
    assert rendered == base | by_name(reading.manifests(STAND_BY))
    patch = reading.driver_patch(STAND_BY)
    assert patch.pop("volumeClaimTemplates") is None
    assert "volumeClaimTemplates" not in driver["spec"], "each pod would have a checkpoint of its own"
    assert_within(patch, driver["spec"])


def assert_within(patch: Any, whole: Any) -> None:
    """Assert that an object has everything of a strategic merge patch. Lists are merged by name."""
    if isinstance(patch, dict):
        for name, value in patch.items():
            assert_within(value, whole[name])
    elif isinstance(patch, list) and isinstance(patch[0], dict):
        for each in patch:
            [same] = [other for other in whole if identity(other) == identity(each)]
            assert_within(each, same)
    else:
        assert patch == whole


def identity(item: Object) -> Any:
    return item.get("name") or item.get("metadata")


@pytest.mark.parametrize("name", RENDERED)
def test_the_chart_matches_the_schemas_of_kubernetes(name: str) -> None:
    assert_valid(reading.rendered(name))


@needs("helm")
def test_a_pinned_image_matches_the_schemas_of_kubernetes() -> None:
    assert_valid(reading.objects(reading.chart(f"image.digest={DIGEST}", "image.pullSecrets={mine}")))


def assert_valid(objects: list[Object]) -> None:
    for each in objects:
        for version in ("1.37", "1.29"):
            kubernetes_validate.validate(each, version, strict=True)


def test_the_chart_has_the_version_of_the_product() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == __version__


def images(*values: str) -> set[str]:
    return {
        container["image"]
        for each in reading.objects(reading.chart(*values))
        if each["kind"] in ("StatefulSet", "Deployment")
        for container in each["spec"]["template"]["spec"]["containers"]
    }


@needs("helm")
def test_the_image_is_chosen_by_tag_or_by_digest() -> None:
    assert images() == {f"groupcoord:{__version__}"}
    assert images("image.repository=example.org/g", "image.tag=v7") == {"example.org/g:v7"}
    assert images("image.tag=v7", f"image.digest={DIGEST}") == {f"groupcoord@{DIGEST}"}


@needs("helm")
def test_values_reach_the_objects() -> None:
    values = ("gateway.replicas=3", "gateway.brokerIds={4,9}", "gateway.settings.gateway_port=9300")
    objects = by_name(reading.objects(reading.chart(*values, "gateway.serviceType=NodePort")))
    assert objects["Deployment", "coordinator-gateway"]["spec"]["replicas"] == 3
    service = objects["Service", "coordinator-gateway"]["spec"]
    assert {each["name"]: each["port"] for each in service["ports"]} == {
        "bootstrap": 9300,
        "broker-4": 9305,
        "broker-9": 9310,
    }
    assert service["type"] == "NodePort"
    [rule] = objects["NetworkPolicy", "clients"]["spec"]["ingress"]
    assert rule["ports"] == [{"protocol": "TCP", "port": 9300, "endPort": 9310}]


@needs("helm")
def test_numbers_of_a_file_are_written_in_full(tmp_path: Path) -> None:
    """Helm reads each number of a file as a float."""
    values = tmp_path / "values.yaml"
    values.write_text("settings: {whole: 1000000, fraction: 0.5, truth: true}")
    data = by_name(reading.objects(reading.chart(file=values)))["ConfigMap", "coordinator-settings"]["data"]
    assert data["COORDINATOR_WHOLE"] == "1000000"
    assert data["COORDINATOR_FRACTION"] == "0.5"
    assert data["COORDINATOR_TRUTH"] == "true"


@needs("helm")
def test_network_policies_can_be_left_out() -> None:
    kinds = {
        each["kind"] for each in reading.objects(reading.chart("networkPolicies.enabled=false", *RENDERED["executors"]))
    }
    assert "NetworkPolicy" not in kinds
    assert "Role" in kinds


@needs("helm")
@pytest.mark.parametrize(
    ("value", "named"),
    [
        ("image.digest=sha256:abc", "digest"),
        ("gateway.replicas=0", "replicas"),
        ("settings.health_port=70000", "health_port"),
        ("settings.bootstrap_servers=", "bootstrap_servers"),
        ("settings.sasl_password=x", "sasl_password is a password"),
        ("gateway.settings.ssl_key_password=x", "ssl_key_password is a password"),
        ("executors.memory=lots", "memory"),
        ("networkPolicies.enabled=maybe", "enabled"),
        ("nonsense=1", "nonsense"),
    ],
)
def test_an_invalid_value_is_refused(value: str, named: str) -> None:
    with pytest.raises(subprocess.CalledProcessError) as refused:
        reading.chart(value)
    assert named in refused.value.stderr
