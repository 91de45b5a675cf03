"""The settings of Spark that a user has set, and which of them count."""

from pathlib import Path

import pytest

from streaming.config.settings import Settings
from streaming.query.spark.spark_config import (
    JAVA_OPTIONS,
    JOINED,
    NEEDED,
    SPARK_CONFIG,
    STATE_STORES,
    BadSparkSettings,
    refuse_changed,
    user_config,
    with_users,
)

PROVIDER = "spark.sql.streaming.stateStore.providerClass"


@pytest.fixture
def defaults(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Spark's defaults file of a process that spark-submit has not started."""
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    return tmp_path / "spark-defaults.conf"


def test_defaults_file_is_read_as_java_reads_it(defaults: Path) -> None:
    assert user_config() == {}, "there may be none"
    defaults.write_text("# for all jobs\nspark.locality.wait  7s \nspark.eventLog.dir=hdfs\\:///events\n")
    assert user_config() == {"spark.locality.wait": "7s", "spark.eventLog.dir": "hdfs:///events"}


def test_defaults_file_that_cannot_be_read_is_named(defaults: Path) -> None:
    defaults.mkdir()
    with pytest.raises(BadSparkSettings, match=r"spark-defaults\.conf cannot be read"):
        user_config()


def test_each_name_of_our_tuning_gives_way_to_the_users() -> None:
    for name in SPARK_CONFIG:
        left = with_users(SPARK_CONFIG, {name: "theirs"})
        assert left == {other: value for other, value in SPARK_CONFIG.items() if other != name}


def test_lists_have_both_parts() -> None:
    ours, users = dict.fromkeys(JOINED, "ours"), dict.fromkeys(JOINED, "theirs")
    assert with_users(ours, users) == {name: f"ours{separator}theirs" for name, separator in JOINED.items()}


def test_users_garbage_collector_replaces_ours() -> None:
    ours = {JAVA_OPTIONS: "-Done=1 -XX:+UseParallelGC -Dtwo=2"}
    assert with_users(ours, {JAVA_OPTIONS: "-XX:+UseG1GC"}) == {JAVA_OPTIONS: "-Done=1 -Dtwo=2 -XX:+UseG1GC"}
    assert with_users(ours, {JAVA_OPTIONS: "-Xss4m"}) == {JAVA_OPTIONS: f"{ours[JAVA_OPTIONS]} -Xss4m"}


@pytest.mark.parametrize("name", [*NEEDED, PROVIDER])
def test_value_that_the_coordinator_cannot_use_is_refused(name: str) -> None:
    settings = Settings()
    needed = {**NEEDED, **STATE_STORES[settings.state_store]}[name]
    refuse_changed(settings, {name: needed})
    with pytest.raises(BadSparkSettings) as refused:
        refuse_changed(settings, {name: "other"})
    assert str(refused.value) == (
        f"Spark's settings have {name}=other, and a coordinator with state_store hdfs needs {needed}: leave {name} out."
    )


def test_number_of_tasks_of_a_site_is_no_reason_to_refuse() -> None:
    """Sites have this default for all their jobs. The coordinator's own setting counts."""
    refuse_changed(Settings(), {"spark.sql.shuffle.partitions": "200"})
