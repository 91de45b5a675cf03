"""The deployment files agree with the product and with each other: settings, commands, ports, names, exit codes."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import kubernetes_validate
import pytest
import trustme
import typer

from streaming import __version__
from streaming.cli.main import app
from streaming.config.settings import CONFIG_FILE_VARIABLE, Settings
from streaming.embedded.jars import CACHE_VARIABLE
from streaming.errors import Exit
from streaming.logs import FORMAT_VARIABLE, LogFormat
from streaming.query.running_query import BATCH_WAIT_S
from tests.deploy import reading
from tests.deploy.reading import BASE, DEPLOY, EXECUTORS, ROOT, STAND_BY, UNITS, Started
from tests.system.waiting import HANG_S
from tests.tools import needs

STARTED = list(reading.started())
IMAGE = f"groupcoord:{__version__}"

VARIABLES = {f"COORDINATOR_{name.upper()}" for name in Settings.model_fields}
VARIABLES |= {CONFIG_FILE_VARIABLE, FORMAT_VARIABLE, CACHE_VARIABLE}


def of_each(started: Started) -> str:
    return started.where


# -- settings and commands ---------------------------------------------------------------------------------------------


def test_every_variable_exists() -> None:
    """A process refuses to start with an unknown variable. So no file may have one, nor a drop-in or a note."""
    files = [ROOT / "Dockerfile", ROOT / "docker-compose.yml", *(file for file in DEPLOY.rglob("*") if file.is_file())]
    found = {name for file in files for name in re.findall(r"\bCOORDINATOR_[A-Z_]*[A-Z]\b", file.read_text())}
    assert len(found) > 15
    assert found <= VARIABLES


@pytest.mark.parametrize("started", STARTED, ids=of_each)
def test_every_command_parses(started: Started) -> None:
    assert started.command[0] == "coordinator"
    group = typer.main.get_command(app)
    context = group.make_context("coordinator", started.command[1:])
    name, command, words = group.resolve_command(context, [*context._protected_args, *context.args])  # type: ignore[attr-defined]
    command.make_context(name, words, parent=context)


@pytest.mark.parametrize("started", STARTED, ids=of_each)
def test_every_process_accepts_its_settings(started: Started, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Values are in range and consistent, when the secrets of the platform are in the expected files."""
    authority = trustme.CA()
    place = tmp_path / "given"
    for folder in ("ca", "tls", "kafka"):
        (place / folder).mkdir(parents=True)
    authority.cert_pem.write_to_path(place / "ca" / "ca.crt")
    certificate = authority.issue_cert("gateway")
    certificate.cert_chain_pems[0].write_to_path(place / "tls" / "tls.crt")
    certificate.private_key_pem.write_to_path(place / "tls" / "tls.key")
    (place / "kafka" / "password").write_text("secret\n")
    (place / "coordinator.toml").touch()
    for name, value in started.environment.items():
        if name == CONFIG_FILE_VARIABLE:
            value = str(place / "coordinator.toml")
        if name.startswith("COORDINATOR_"):
            monkeypatch.setenv(name, value.replace("/etc/coordinator", str(place)))
    Settings.load()
    LogFormat(started.environment.get(FORMAT_VARIABLE, "text"))


def test_no_file_contains_a_secret() -> None:
    """Passwords are references, and no manifest creates a Secret."""
    for folder in (BASE, EXECUTORS):
        assert all(each["kind"] != "Secret" for each in reading.manifests(folder))
    for started in STARTED:
        assert started.setting("sasl_password") is None, started.where
        assert started.setting("ssl_key_password") is None, started.where


# -- ports -------------------------------------------------------------------------------------------------------------


def test_probes_use_the_health_port() -> None:
    port = reading.image_environment()["COORDINATOR_HEALTH_PORT"]
    [check] = [line for line in reading.dockerfile() if line.startswith("HEALTHCHECK")]
    assert f"http://127.0.0.1:{port}/healthz" in check
    assert f"EXPOSE {port}" in reading.dockerfile()
    for name in ("coordinator", "gateway"):
        [container] = reading.pods()[name]["containers"]
        environment = reading.container_environment(container)
        ports = {each["name"]: each["containerPort"] for each in container["ports"]}
        assert str(ports["health"]) == environment["COORDINATOR_HEALTH_PORT"] == port
        assert environment["COORDINATOR_HEALTH_HOST"] == "0.0.0.0"  # the kubelet connects from outside the pod
        probes = {kind: container[f"{kind}Probe"]["httpGet"] for kind in ("startup", "liveness", "readiness")}
        assert {kind: each["path"] for kind, each in probes.items()} == {
            "startup": "/healthz",  # the first batch may take long
            "liveness": "/healthz",
            "readiness": "/readyz",
        }
        assert {each["port"] for each in probes.values()} == {"health"}


def test_the_gateway_has_one_port_and_one_more_for_each_broker() -> None:
    """The port of broker N is the first port plus 1 plus N, in pod, Service, NetworkPolicy and docker-compose.yml."""
    [container] = reading.pods()["gateway"]["containers"]
    first = int(reading.container_environment(container)["COORDINATOR_GATEWAY_PORT"])
    wanted = {"bootstrap": first} | {f"broker-{node}": first + 1 + node for node in range(3)}
    inside = {each["name"]: each["containerPort"] for each in container["ports"] if each["name"] != "health"}
    service = reading.named("Service", "coordinator-gateway")["spec"]["ports"]
    assert inside == wanted
    assert {each["name"]: each["port"] for each in service} == wanted
    assert all(each["targetPort"] == each["name"] for each in service)
    [rule] = reading.named("NetworkPolicy", "clients")["spec"]["ingress"]
    assert [(each["port"], each["endPort"]) for each in rule["ports"]] == [(first, max(wanted.values()))]

    services = reading.compose()["services"]
    node = int(services["broker"]["environment"]["KAFKA_NODE_ID"])
    first = int(services["gateway"]["environment"]["COORDINATOR_GATEWAY_PORT"])
    assert services["gateway"]["ports"] == [f"127.0.0.1:{port}:{port}" for port in (first, first + 1 + node)]


def test_the_gateway_advertises_its_services_name() -> None:
    name = reading.generated()["gateway-settings"]["COORDINATOR_GATEWAY_ADVERTISED_HOST"]
    namespace = reading.kustomization(BASE)["namespace"]
    assert name == f"coordinator-gateway.{namespace}.svc.cluster.local"


# -- images and names --------------------------------------------------------------------------------------------------


def test_all_files_name_the_image_of_this_version() -> None:
    [image] = reading.kustomization(BASE)["images"]
    assert f"{image['name']}:{image['newTag']}" == IMAGE
    assert {each["image"] for each in reading.ours().values()} == {IMAGE}
    assert reading.spark_defaults()["spark.kubernetes.container.image"] == IMAGE
    for name in ("coordinator", "gateway"):
        assert reading.pods()[name]["containers"][0]["image"] == image["name"]


def test_images_of_others_are_pinned() -> None:
    """Each tag names a patch release, never a moving tag."""
    outside = {line.split()[1] for line in reading.dockerfile() if line.startswith("FROM ")}
    outside |= {each["image"] for each in reading.compose()["services"].values() if "build" not in each}
    assert len(outside) == 2
    for image in outside:
        assert re.fullmatch(r"[a-z/]+:\d+\.\d+\.\d+(-[a-z-]+)?", image), image


def test_dockerignore_lists_the_copied_files() -> None:
    included = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = [line.split()[1:-1] for line in reading.dockerfile() if line.startswith("COPY ") and "--from" not in line]
    names = {name for words in copied for name in words if not name.startswith("--")}
    assert names == included
    assert all((ROOT / name).exists() for name in names)


def test_every_name_that_a_manifest_refers_to_exists() -> None:
    """A name exists if kustomize generates it, or if the comment of kustomization.yaml lists it as the platform's."""
    provided = "".join(line for line in (BASE / "kustomization.yaml").read_text().splitlines() if line.startswith("#"))
    for pod in reading.pods().values():
        volumes = {each["name"]: each for each in pod["volumes"]}
        for container in pod["containers"]:
            assert {each["name"] for each in container["volumeMounts"]} - {"checkpoint"} <= set(volumes)
        for volume in volumes.values():
            for name in [volume.get("secret", {}).get("secretName"), volume.get("configMap", {}).get("name")]:
                assert name is None or name in provided
    for folder in (BASE, EXECUTORS):
        files = [*reading.kustomization(folder)["resources"]]
        files += reading.patch_files(folder)
        files += [
            file for each in reading.kustomization(folder)["configMapGenerator"] for file in each.get("files", [])
        ]
        assert all((folder / file).exists() for file in files)


def test_the_driver_and_its_executors_can_connect() -> None:
    """In the overlay, the Service's name, the pod's ports, the pod's name and the claim's name agree."""
    options = reading.spark_defaults()
    driver = reading.driver_patch()["template"]["spec"]
    ports = {str(each["containerPort"]) for each in driver["containers"][0]["ports"]}
    assert {options["spark.driver.port"], options["spark.blockManager.port"]} == ports
    namespace = reading.kustomization(EXECUTORS)["namespace"]
    service = reading.named("Service", "coordinator")
    assert options["spark.driver.host"] == f"{service['metadata']['name']}.{namespace}.svc.cluster.local"
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["publishNotReadyAddresses"]
    stateful = reading.named("StatefulSet", "coordinator")["spec"]
    assert stateful["serviceName"] == service["metadata"]["name"]
    assert options["spark.kubernetes.driver.pod.name"] == "coordinator-0"
    claims = [
        each["persistentVolumeClaim"]["claimName"]
        for each in reading.pods()["executor"]["volumes"]
        if "persistentVolumeClaim" in each
    ]
    [template] = stateful["volumeClaimTemplates"]
    assert claims == [f"{template['metadata']['name']}-coordinator-0"]


# -- permissions -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", reading.pods())
def test_pods_have_no_unused_permissions(name: str) -> None:
    pod = reading.pods()[name]
    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not pod["automountServiceAccountToken"]
    assert not pod["enableServiceLinks"]  # else variables such as COORDINATOR_SERVICE_HOST prevent every start
    for container in pod["containers"]:
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert {"name": "tmp", "mountPath": "/tmp"} in container["volumeMounts"]


@pytest.mark.parametrize("name", reading.ours())
def test_containers_have_no_unused_permissions(name: str) -> None:
    service = reading.ours()[name]
    assert service["user"] == "10001:10001"
    assert service["read_only"]
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["restart"].startswith("on-failure:")
    assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))  # the protocol is plain text


def test_the_image_runs_as_an_unprivileged_user() -> None:
    lines = reading.dockerfile()
    assert lines.index("USER 10001:10001") > lines.index("RUN coordinator prepare")
    assert "STOPSIGNAL SIGTERM" in lines
    assert 'ENTRYPOINT ["tini", "--"]' in lines


# -- single coordinator, restarts and stops ----------------------------------------------------------------------------


def test_a_checkpoint_has_at_most_one_driver() -> None:
    coordinator = reading.named("StatefulSet", "coordinator")["spec"]
    assert coordinator["replicas"] == 1
    assert coordinator["volumeClaimTemplates"][0]["spec"]["accessModes"] == ["ReadWriteOncePod"]
    assert "replicas" not in reading.driver_patch()


def test_two_drivers_on_a_checkpoint_stand_by_for_each_other() -> None:
    patch = reading.driver_patch(STAND_BY)
    pod = patch["template"]["spec"]
    assert patch["replicas"] == 2
    assert pod["containers"][0]["env"] == [{"name": "COORDINATOR_STAND_BY", "value": "true"}]
    claim = reading.named("PersistentVolumeClaim", "coordinator-checkpoint", STAND_BY)
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    assert pod["volumes"][0]["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
    drop_in = (DEPLOY / "systemd" / "coordinator.service.d" / "stand-by.conf").read_text()
    assert "\nEnvironment=COORDINATOR_STAND_BY=true\n" in drop_in


def test_a_stop_waits_for_the_running_batch() -> None:
    assert reading.pods()["coordinator"]["terminationGracePeriodSeconds"] > BATCH_WAIT_S
    assert seconds(reading.compose()["services"]["coordinator"]["stop_grace_period"]) > BATCH_WAIT_S
    unit = (DEPLOY / "systemd" / "coordinator.service").read_text()
    assert seconds(re.findall(r"^TimeoutStopSec=(.*)$", unit, re.MULTILINE)[0]) > BATCH_WAIT_S
    assert re.search(r"^KillMode=mixed$", unit, re.MULTILINE)  # else Java would end before the batch


def seconds(text: str) -> int:
    return int(text.removesuffix("s"))


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: str(unit.name))
def test_units_are_not_restarted_when_a_person_is_needed(unit: Path) -> None:
    text = unit.read_text()
    [codes] = re.findall(r"^RestartPreventExitStatus=(.*)$", text, re.MULTILINE)
    assert {int(code) for code in codes.split()} == {Exit.USAGE, Exit.NEEDS_A_PERSON}
    assert "\nRestart=on-failure\n" in text
    assert "\nStartLimitBurst=" in text


# -- the tools that read the files -------------------------------------------------------------------------------------


@pytest.mark.parametrize("folder", [BASE, EXECUTORS, STAND_BY], ids=lambda folder: str(folder.name))
def test_manifests_match_the_schemas_of_kubernetes(folder: Path) -> None:
    """They match the newest schema, and the oldest one that has all used fields. An unknown field is an error."""
    for each in reading.manifests(folder):
        for version in ("1.37", "1.29"):
            kubernetes_validate.validate(each, version, strict=True)


def test_compose_services_refer_to_existing_names() -> None:
    compose = reading.compose()
    for service in compose["services"].values():
        assert service.keys() <= COMPOSE_KEYS
        for other, how in service.get("depends_on", {}).items():
            checked = compose["services"][other]
            assert how == {"condition": "service_healthy"}
            assert "healthcheck" in checked or "build" in checked  # the image has its own health check
        for volume in service.get("volumes", []):
            assert volume.split(":")[0] in compose["volumes"]


COMPOSE_KEYS = {
    "build",
    "cap_drop",
    "command",
    "depends_on",
    "environment",
    "healthcheck",
    "image",
    "ports",
    "read_only",
    "restart",
    "scale",
    "security_opt",
    "stop_grace_period",
    "tmpfs",
    "user",
    "volumes",
}


@needs("systemd-analyze")
def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    """The units are checked with their drop-ins. Their program is replaced by the one of this environment."""
    ours = Path(sys.executable).with_name("coordinator")
    shutil.copytree(DEPLOY / "systemd", tmp_path / "units")
    for unit in (tmp_path / "units").glob("*.service"):
        unit.write_text(unit.read_text().replace("/opt/coordinator/bin/coordinator", str(ours)))
    done = subprocess.run(
        ["systemd-analyze", "verify", *(f"./{unit.name}" for unit in UNITS)],
        cwd=tmp_path / "units",
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
