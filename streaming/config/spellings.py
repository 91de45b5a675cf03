"""The broker access under each client library's names. The results contain the password, so never display them.

A `AccessSettings` is a mapping from the names of `security.BrokerAccess` to the set values, with unmasked secrets. With
`ssl_certfile`, it always contains `ssl_keyfile`. It contains `ssl_check_hostname` under TLS only.

Java's properties files have the format that java.util.Properties reads.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

AccessSettings = Mapping[str, Any]


class _Spelling(NamedTuple):
    """The names of one setting; None if a library has no such setting, or expects another form."""

    kafka_python: str | None
    librdkafka: str
    java: str | None = None


_SPELLINGS: Mapping[str, _Spelling] = {
    # our setting                   kafka-python           librdkafka                  Kafka's Java clients
    "security_protocol":  _Spelling("security_protocol",   "security.protocol",        "security.protocol"),
    "sasl_mechanism":     _Spelling("sasl_mechanism",      "sasl.mechanism",           "sasl.mechanism"),
    "sasl_username":      _Spelling("sasl_plain_username", "sasl.username"),
    "sasl_password":      _Spelling("sasl_plain_password", "sasl.password"),
    "ssl_cafile":         _Spelling("ssl_cafile",          "ssl.ca.location",          "ssl.truststore.location"),
    "ssl_certfile":       _Spelling("ssl_certfile",        "ssl.certificate.location"),
    "ssl_keyfile":        _Spelling("ssl_keyfile",         "ssl.key.location"),
    "ssl_key_password":   _Spelling("ssl_password",        "ssl.key.password",         "ssl.key.password"),

    "sasl_oauth_token_url":
        _Spelling(None, "sasl.oauthbearer.token.endpoint.url", "sasl.oauthbearer.token.endpoint.url"),
    "sasl_oauth_client_id":     _Spelling(None, "sasl.oauthbearer.client.id"),
    "sasl_oauth_client_secret": _Spelling(None, "sasl.oauthbearer.client.secret"),
    "sasl_oauth_scope":         _Spelling(None, "sasl.oauthbearer.scope"),
    "sasl_oauth_cafile":        _Spelling(None, "https.ca.location"),
}  # fmt: skip

_OAUTH = "org.apache.kafka.common.security.oauthbearer"
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
_LOGIN_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": _SCRAM,
    "SCRAM-SHA-512": _SCRAM,
    "OAUTHBEARER": f"{_OAUTH}.OAuthBearerLoginModule",
}

_JAAS_OPTIONS = {
    # our setting                 Kafka's login modules
    "sasl_username":            "username",
    "sasl_password":            "password",
    "sasl_oauth_client_id":     "clientId",
    "sasl_oauth_client_secret": "clientSecret",
    "sasl_oauth_scope":         "scope",
    "sasl_oauth_cafile":        "ssl.truststore.location",
}  # fmt: skip

_JAAS_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n", "\r": r"\r"})
_SCRAM_ESCAPES = str.maketrans({"=": "=3D", ",": "=2C"})


def kafka_python(access: AccessSettings) -> dict[str, Any]:
    """Return the broker access as arguments of kafka-python's clients."""
    spelt = {
        spelling.kafka_python: access[name]
        for name, spelling in _SPELLINGS.items()
        if name in access and spelling.kafka_python
    }
    if "tokens" in access:
        spelt["sasl_oauth_token_provider"] = access["tokens"]
    if access.get("sasl_mechanism", "").startswith("SCRAM"):  # kafka-python does not escape SCRAM user names
        spelt["sasl_plain_username"] = access["sasl_username"].translate(_SCRAM_ESCAPES)
    if "ssl_check_hostname" in access:
        spelt["ssl_check_hostname"] = access["ssl_check_hostname"]
    return {"bootstrap_servers": access["bootstrap_servers"].split(","), **spelt}


def librdkafka(access: AccessSettings) -> dict[str, str]:
    """Return the broker access as a configuration of confluent-kafka's clients."""
    spelt = {spelling.librdkafka: access[name] for name, spelling in _SPELLINGS.items() if name in access}
    if "tokens" in access:
        spelt["sasl.oauthbearer.method"] = "oidc"
        spelt.setdefault("https.ca.location", "probe")  # its wheels find no authorities by default
    if "ssl_check_hostname" in access:
        spelt["ssl.endpoint.identification.algorithm"] = "https" if access["ssl_check_hostname"] else "none"
    return {"bootstrap.servers": access["bootstrap_servers"], **spelt}


def java(access: AccessSettings) -> dict[str, str]:
    """Return the broker access as properties of Kafka's Java clients.

    Certificate and key are given as the contents of their files, so that a cluster's executors need no copies of the
    files. The file of `ssl_cafile` must exist on every machine: a system's file is far too large to be sent with each
    task.
    """
    spelt = {spelling.java: access[name] for name, spelling in _SPELLINGS.items() if name in access and spelling.java}
    if "sasl_mechanism" in access:
        spelt["sasl.jaas.config"] = jaas_config(access["sasl_mechanism"], **_jaas_options(access))
    if "tokens" in access:
        spelt["sasl.login.callback.handler.class"] = f"{_OAUTH}.OAuthBearerLoginCallbackHandler"
    if "ssl_cafile" in access:
        spelt["ssl.truststore.type"] = "PEM"
    if "ssl_certfile" in access:
        spelt["ssl.keystore.type"] = "PEM"
        spelt["ssl.keystore.certificate.chain"] = Path(access["ssl_certfile"]).read_text()
        spelt["ssl.keystore.key"] = Path(access["ssl_keyfile"]).read_text()
    if "ssl_check_hostname" in access:
        spelt["ssl.endpoint.identification.algorithm"] = "https" if access["ssl_check_hostname"] else ""
    return {"bootstrap.servers": access["bootstrap_servers"], **spelt}


def jaas_config(mechanism: str, **options: str) -> str:
    """Return the `sasl.jaas.config` of Kafka's Java clients. An option cannot contain its closing quote.

    Source: Kafka's JaasConfig, which reads with java.io.StreamTokenizer.
    """
    quoted = (f'{name}="{value.translate(_JAAS_ESCAPES)}"' for name, value in options.items())
    return f"{' '.join((_LOGIN_MODULES[mechanism], 'required', *quoted))};"


def _jaas_options(access: AccessSettings) -> dict[str, str]:
    options = {option: access[name] for name, option in _JAAS_OPTIONS.items() if name in access}
    if "tokens" in access:  # at level debug, Spark logs the options before a password
        options = {"password": "", **options}
    if "sasl_oauth_cafile" in access:
        options["ssl.truststore.type"] = "PEM"
    return options


# -- Java's properties files -------------------------------------------------------------------------------------------


_CONTINUED = re.compile(r"(?<!\\)(?:\\\\)*\\$")
_LINE = re.compile(r"((?:\\.|[^\\=:\s])*)\s*[=:]?\s*(.*)", re.DOTALL)
_ESCAPED = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_LETTERS = {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}


def read_properties(text: str) -> dict[str, str]:
    """Parse properties as java.util.Properties does: the last of several equal names counts."""
    return {_unescaped(name): _unescaped(value) for name, value in map(_parted, _logical_lines(text))}


def _logical_lines(text: str) -> Iterator[str]:
    begun = ""
    for line in text.splitlines():
        stripped = line.lstrip(" \t\f")
        if not begun and (not stripped or stripped[0] in "#!"):
            continue
        begun += stripped
        if _CONTINUED.search(begun):
            begun = begun[:-1]
            continue
        yield begun
        begun = ""
    if begun:
        yield begun


def _parted(line: str) -> tuple[str, str]:
    found = _LINE.fullmatch(line)
    assert found, "each line has a name, which may be empty"
    return found[1], found[2]


def _unescaped(text: str) -> str:
    """Return a text without the escapes of a properties file."""

    def letter(found: re.Match[str]) -> str:
        what = found[1]
        return chr(int(what[1:], 16)) if len(what) > 1 else _LETTERS.get(what, what)

    return _ESCAPED.sub(letter, text)
