"""The example with Prometheus and Grafana: its files fit each other, the board, the rules and `coordinator up`."""

import json
from pathlib import Path
from typing import Any

import yaml

from tests.deploy.reading import ROOT

FOLDER = ROOT / "examples" / "grafana"


def read(name: str) -> Any:
    return yaml.safe_load((FOLDER / name).read_text())


def mounts(service: str) -> dict[str, Path]:
    """Return the files that a container gets, by their paths inside."""
    mounted = {}
    for each in read("docker-compose.yml")["services"][service]["volumes"]:
        source, target, _ = each.split(":")
        mounted[target] = (FOLDER / source).resolve()
    return mounted


def test_every_mounted_file_exists() -> None:
    files = [file for service in ("prometheus", "grafana") for file in mounts(service).values()]
    assert files
    assert [file for file in files if not file.is_file()] == []


def test_prometheus_gets_its_configuration_and_the_rules() -> None:
    [config] = [
        word.partition("=")[2]
        for word in read("docker-compose.yml")["services"]["prometheus"]["command"]
        if word.startswith("--config.file=")
    ]
    assert mounts("prometheus")[config] == FOLDER / "prometheus.yml"
    for name in read("prometheus.yml")["rule_files"]:
        rules = mounts("prometheus")[str(Path(config).parent / name)]
        assert rules == ROOT / "deploy" / "monitoring" / "alerts.yml"


def test_prometheus_scrapes_the_page_of_the_line_in_the_readme() -> None:
    [job] = read("prometheus.yml")["scrape_configs"]
    [target] = job["static_configs"][0]["targets"]
    host, _, port = target.partition(":")
    assert host == "127.0.0.1"
    assert f"groupcoord up --dashboard-port {port}\n" in (FOLDER / "README.md").read_text()


def test_grafana_gets_the_board_and_the_data_source_that_it_uses() -> None:
    [provider] = read("boards.yml")["providers"]
    [board_file] = [
        file for target, file in mounts("grafana").items() if Path(target).parent == Path(provider["options"]["path"])
    ]
    board = json.loads(board_file.read_text())
    [variable] = [each for each in board["templating"]["list"] if each["type"] == "datasource"]
    [source] = read("datasources.yml")["datasources"]
    assert (source["type"], source["isDefault"]) == (variable["query"], True)
    listens = f"--web.listen-address={source['url'].removeprefix('http://')}"
    assert listens in read("docker-compose.yml")["services"]["prometheus"]["command"]
