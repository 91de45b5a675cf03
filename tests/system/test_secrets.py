"""I23: no secret leaves the process. The test searches all output of a run with maximal logging.

Spark and Kafka log at debug. Spark's pages, its event log and its full plans are on. The run ends in a failure that is
logged in full. The secrets come from the environment and from files.
"""

import base64
import hmac
import html
import json
import os
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import unquote, urljoin

import psutil
import pyspark
import pytest
from kafka import KafkaAdminClient

from streaming.client import Transport
from streaming.config.security import MECHANISMS
from streaming.config.settings import Settings
from streaming.embedded import connector, fetch
from streaming.embedded.broker import free_port
from streaming.errors import Exit
from streaming.wire.signing import HASH
from tests.system.asking import Asker
from tests.system.conftest import Service
from tests.system.secured import USERS, SecuredBroker
from tests.system.token_endpoint import CLIENT_ID, SECRET, TokenEndpoint, broker_by_token
from tests.system.waiting import HANG_S

pytestmark = pytest.mark.long

PAGES = ("SQL", "StreamingQuery", "environment")
PAGES_MAX = 300
HEALTH_PAGES = ("metrics", "healthz", "readyz", "nowhere")
LINK = re.compile(r"""href=["']([^"'#]+)""")
CHATTY = """
rootLogger.level = debug
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d %p %c: %m%n%ex
"""
ACCESS_KEY = "an_access_key,_with_/_and_+_and_=_in_it"


@pytest.fixture
def endpoint(tmp_path: Path) -> Iterator[TokenEndpoint]:
    with TokenEndpoint(tmp_path) as endpoint:
        yield endpoint


@pytest.fixture
def secured(tmp_path: Path, endpoint: TokenEndpoint) -> Iterator[SecuredBroker]:
    with broker_by_token(tmp_path / "secured", endpoint) as broker:
        yield broker


@contextmanager
def chatty_service(folder: Path, settings: Settings, variables: Mapping[str, str]) -> Iterator[tuple[Service, str]]:
    """Run the coordinator by spark-submit with maximal logging, and yield the service and the URL of Spark's pages."""
    (log4j := folder / "log4j2.properties").write_text(CHATTY)
    (folder / "events").mkdir()
    port = free_port()
    conf = {
        "spark.ui.enabled": "true",
        "spark.ui.port": str(port),
        "spark.ui.killEnabled": "false",
        "spark.sql.ui.explainMode": "extended",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": (folder / "events").as_uri(),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={log4j.as_uri()}",
    }
    ready_file, log_file = folder / "ready", folder / "log"
    command = [
        *(Path(pyspark.__file__).parent / "bin" / "spark-submit", "--verbose", "--master", "local[2]"),
        *(word for name, value in conf.items() for word in ("--conf", f"{name}={value}")),
        *("--jars", ",".join(map(str, fetch(connector())))),
        *(Path("groupcoord.py").absolute(), "--verbose", "run", "--ready-file", ready_file),
    ]
    with log_file.open("wb") as log:
        process = subprocess.Popen(
            [str(word) for word in command],
            cwd=folder,
            env={**os.environ, "PYSPARK_PYTHON": sys.executable, **variables},
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    service = Service(process, settings, Path(settings.checkpoint), ready_file, log_file)
    try:
        yield service, f"http://127.0.0.1:{port}"
    finally:
        if process.poll() is None:
            service.kill()


@pytest.mark.nightly
@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-512", "OAUTHBEARER"])
def test_no_secret_can_be_read_anywhere(
    secured: SecuredBroker, endpoint: TokenEndpoint, tmp_path: Path, mechanism: str
) -> None:
    """No log, page, plan, metric, file or argument holds a secret. The searched texts are the expected ones."""
    (key_file := tmp_path / "access-key").write_text(ACCESS_KEY)
    (folder := tmp_path / "run").mkdir()
    by_token = secured.access("SASL_SSL") | endpoint.access() | {"principal": "User:ana"}
    wanted = {
        **(secured.access("SASL_SSL", mechanism) if mechanism in MECHANISMS else by_token),
        "ssl_certfile": str(secured.clients.cert),
        "ssl_keyfile": str(secured.clients.key),
        "access": "rules",
        "access_key_file": str(key_file),
        "super_users": '["User:ana"]',
        "topic_prefix": "secret",
        "replication_factor": "1",
        "request_partitions": "4",
        "health_port": str(free_port()),
        "checkpoint": str(folder / "state"),
    }
    settings = Settings.load(**{**wanted, "super_users": ("User:ana",)})
    variables = {f"COORDINATOR_{name.upper()}": value for name, value in wanted.items()}
    with chatty_service(folder, settings, variables) as (service, spark):
        service.await_ready()
        with Transport(settings.kafka_client_arguments(), "secret", settings.signer_at) as transport:
            assert Asker(transport, "g").alone()[1] == 1
        found = {"arguments": arguments_of(service), **dict(pages_of_spark(spark))}
        found |= {page: read(f"http://127.0.0.1:{settings.health_port}/{page}") for page in HEALTH_PAGES}
        with KafkaAdminClient(**settings.kafka_client_arguments()) as admin:
            admin.delete_topics([settings.requests_topic])
        assert service.process.wait(HANG_S) in (Exit.FAILED, Exit.NEEDS_A_PERSON), service.log
    identity = service.checkpoint / "identity.json"
    found |= {str(file): file.read_text(errors="replace") for file in folder.rglob("*") if file.is_file()}
    assert not unseen(found, service), "expected texts were not searched"
    secrets = secrets_of(settings, secured, endpoint) | {"id secret": json.loads(identity.read_text())["secret"]}
    assert leaks(found, secrets) == [(str(identity), "id secret")]


# -- readable texts --------------------------------------------------------------------------------------------------


def arguments_of(service: Service) -> str:
    """Return the command lines of all processes of a coordinator, as `ps` shows them."""
    submitted, arguments = psutil.Process(service.process.pid), []
    for each in (submitted, *submitted.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):  # a worker may end meanwhile
            arguments.append(" ".join(each.cmdline()))
    return "\n".join(arguments)


def pages_of_spark(address: str) -> Iterator[tuple[str, str]]:
    """Yield the URL and the text of every page that is linked from Spark's first page and from its REST API."""
    application = json.loads(read(f"{address}/api/v1/applications"))[0]["id"]
    figures = f"{address}/api/v1/applications/{application}"
    waiting = [address, *(f"{figures}/{name}" for name in ("environment", "jobs", "stages", "sql?details=true"))]
    seen = set(waiting)
    while waiting and len(seen) < PAGES_MAX:
        yield (page := waiting.pop()), (text := read(page))
        links = {urljoin(page, html.unescape(link)).partition("#")[0] for link in LINK.findall(text)}
        new = {link for link in links - seen if link.startswith(address) and "/static/" not in link}
        seen |= new
        waiting += sorted(new)


def read(page: str) -> str:
    """Return the text of a page with any status."""
    try:
        with urllib.request.urlopen(page, timeout=HANG_S) as answer:
            return str(answer.read().decode(errors="replace"))
    except HTTPError as error:
        with error:
            return error.read().decode(errors="replace")


def unseen(found: Mapping[str, str], service: Service) -> list[str]:
    """Return the names of expected texts that are missing."""
    events = "".join(text for where, text in found.items() if "/events/" in where)
    pages = {name: "".join(text for where, text in found.items() if f"/{name}/" in where) for name in PAGES}
    wanted = {
        "arguments of Java and Python": "SparkSubmit" in found["arguments"] and "worker_daemon" in found["arguments"],
        "plans among Spark's events": "Analyzed Logical Plan" in events and "ShardOperator" in events,
        "plans on Spark's pages": "Analyzed Logical Plan" in pages["SQL"],
        "Spark's environment": "spark.redaction.regex" in pages["environment"],
        "Spark's page of the query": "group-coordinator" in pages["StreamingQuery"],
        "figures": "groupcoord_" in found["metrics"],
        "Kafka's clients in the log": "sasl.jaas.config = [hidden]" in service.log,
        "what Spark tells Kafka's clients in the log": "(redacted)" in service.log,
        "a failure in full in the log": "the query's failure in full" in service.log,
    }
    return [name for name, is_there in wanted.items() if not is_there]


# -- secrets ---------------------------------------------------------------------------------------------------------


def secrets_of(settings: Settings, secured: SecuredBroker, endpoint: TokenEndpoint) -> dict[str, str]:
    """Return the part of each secret that no escaping changes, and its encoded forms."""
    password = USERS["ana"]
    topic_key = hmac.digest(ACCESS_KEY.encode(), settings.requests_topic.encode(), HASH)
    return {
        "password": password.rpartition(" ")[2],
        "password in base64": base64.b64encode(password.encode()).decode().rstrip("="),
        "client's secret": SECRET.rpartition(" ")[2].rstrip("é"),
        "client's secret in base64": base64.b64encode(f"{CLIENT_ID}:{SECRET}".encode()).decode().rstrip("="),
        **{f"token {number}": token.rpartition(".")[2] for number, token in enumerate(endpoint.given)},
        "private key": secured.clients.key.read_text().splitlines()[2],
        "access key": ACCESS_KEY,
        "access key in base64": base64.b64encode(ACCESS_KEY.encode()).decode().rstrip("="),
        "the topic's key": topic_key.hex(),
        "the topic's key in base64": base64.b64encode(topic_key).decode(),
        "the topic's key in Python": repr(topic_key),
    }


def leaks(found: Mapping[str, str], secrets: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the place and the name of each secret that a text holds: plain, or escaped as in HTML or in URLs."""
    readings = {where: (text, html.unescape(text), unquote(text)) for where, text in found.items()}
    return [
        (where, name)
        for where, texts in readings.items()
        for name, secret in secrets.items()
        if any(secret in text for text in texts)
    ]
