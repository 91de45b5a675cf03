"""The principal of a client certificate, spelled as Java spells it for Kafka."""

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from streaming.gateway.security.authenticate import principal_of
from tests.differential.java_assignors import java

NAMES = {
    "one part": [[("COMMON_NAME", "ana")]],
    "in the reverse order": [[("COUNTRY_NAME", "DE")], [("ORGANIZATION_NAME", "Acme")], [("COMMON_NAME", "ana")]],
    "all attributes with short names": [
        [("DOMAIN_COMPONENT", "org")], [("COUNTRY_NAME", "DE")], [("STATE_OR_PROVINCE_NAME", "BW")],
        [("LOCALITY_NAME", "Ulm")], [("STREET_ADDRESS", "Am Bach 1")], [("ORGANIZATION_NAME", "Acme")],
        [("ORGANIZATIONAL_UNIT_NAME", "x")], [("USER_ID", "7")], [("COMMON_NAME", "ana")],
    ],
    "an attribute twice": [[("ORGANIZATIONAL_UNIT_NAME", "a")], [("ORGANIZATIONAL_UNIT_NAME", "b")]],
    "a component with two attributes": [[("COMMON_NAME", "ana"), ("USER_ID", "7")], [("COUNTRY_NAME", "DE")]],
    "characters that must be escaped": [[("COMMON_NAME", 'a,b+c"d\\e<f>g;h=i#j')]],
    "a hash first": [[("COMMON_NAME", "#ana")]],
    "blanks around and inside": [[("COMMON_NAME", "  a  b  ")]],
    "other letters": [[("COMMON_NAME", "añb 消 😀")]],
    "a name within a name": [[("COMMON_NAME", "ana,O=Acme")]],
}  # fmt: skip


def certificate(parts: list[list[tuple[str, str]]], file: Path) -> tuple[dict[str, Any], bytes]:
    """Make a certificate; return it in the ssl module's form, and as bytes."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name(
        [
            x509.RelativeDistinguishedName([x509.NameAttribute(getattr(NameOID, kind), value) for kind, value in part])
            for part in parts
        ]
    )
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key()).serial_number(1)
        .not_valid_before(now).not_valid_after(now + timedelta(days=1)).sign(key, hashes.SHA256())
    )  # fmt: skip
    file.write_bytes(made.public_bytes(Encoding.PEM))
    return ssl._ssl._test_decode_cert(str(file)), made.public_bytes(Encoding.DER)  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def jvm() -> Any:
    with java() as started:
        yield started._gateway.jvm


@pytest.mark.parametrize("name", NAMES)
def test_a_certificates_name_is_spelled_as_in_kafka(name: str, jvm: Any, tmp_path: Path):
    told, der = certificate(NAMES[name], tmp_path / "cert.pem")
    factory = jvm.java.security.cert.CertificateFactory.getInstance("X.509")
    read = factory.generateCertificate(jvm.java.io.ByteArrayInputStream(der))
    assert principal_of(told) == f"User:{read.getSubjectX500Principal().getName()}"


def test_an_unreadable_certificate_gives_no_principal(tmp_path: Path):
    """No principal is safer than a wrong one."""
    told, _ = certificate([[("COMMON_NAME", "ana")], [("EMAIL_ADDRESS", "a@b.c")]], tmp_path / "cert.pem")
    assert principal_of(told) is None
    assert principal_of(certificate([[("COMMON_NAME", "a" * 60)]] * 9, tmp_path / "cert.pem")[0]) is None
    assert principal_of({}) is None
    assert principal_of(None) is None
