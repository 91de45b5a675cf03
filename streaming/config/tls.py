"""TLS contexts out of PEM files, and one sentence where the files will not do. Nothing older than TLS 1.2 is spoken."""

import re
import ssl
from base64 import b64decode
from pathlib import Path

from streaming.errors import UserError

_PLAIN_KEY = "-----BEGIN PRIVATE KEY-----"
_ENCRYPTED_KEY = re.compile("-----BEGIN ENCRYPTED PRIVATE KEY-----([A-Za-z0-9+/=\\s]+)-----END")
_PBES2 = bytes.fromhex("06092a864886f70d01050d")
"""1.2.840.113549.1.5.13: how OpenSSL encrypts keys unless told otherwise, and what Java 17 knows by no name."""


class BadCertificate(UserError):
    """A file holds no certificate or key, or the two do not match."""


def client_context(
    cafile: str | None,
    certfile: str | None = None,
    keyfile: str | None = None,
    key_password: str | None = None,
    *,
    check_hostname: bool = True,
) -> ssl.SSLContext:
    """Make what connections of our own are encrypted with. The other side's certificate is checked in any case.

    The name to check is the host that is connected to, which asyncio takes for `server_hostname` by itself.

    Args:
        cafile: Whose certificates are believed; the system's where it is None.
        certfile: Our own certificate with its chain, and `keyfile` its key unless that is in the same file.

    Raises:
        BadCertificate: a file will not do.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = check_hostname
    if cafile:
        _trust(context, cafile)
    else:
        context.load_default_certs()
    if certfile:
        _show(context, certfile, keyfile, key_password)
    return context


def server_context(
    certfile: str, keyfile: str | None = None, key_password: str | None = None, client_cafile: str | None = None
) -> ssl.SSLContext:
    """Make what connections to us are encrypted with.

    Args:
        certfile: Our certificate with its chain, and `keyfile` its key unless that is in the same file.
        client_cafile: Whose certificates clients must show; they are asked for none where it is None.

    Raises:
        BadCertificate: a file will not do.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    _show(context, certfile, keyfile, key_password)
    if client_cafile:
        context.verify_mode = ssl.CERT_REQUIRED
        _trust(context, client_cafile)
    return context


def check_java_reads(keyfile: str, *, is_encrypted: bool) -> None:
    """Refuse a key that OpenSSL reads and Kafka's Java clients do not: those want PKCS#8, and not PBES2.

    Raises:
        BadCertificate: names the command that converts it.
    """
    text = Path(keyfile).read_text("ascii", "replace")
    if is_encrypted:
        found = _ENCRYPTED_KEY.search(text)
        will_do, how = found is not None and _PBES2 not in b64decode(found[1]), "-v1 PBE-SHA1-3DES"
    else:
        will_do, how = _PLAIN_KEY in text, "-nocrypt"
    if not will_do:
        raise BadCertificate(
            f"{keyfile} holds no key that Spark's Kafka clients can read: convert it by 'openssl pkcs8 -topk8 {how}'."
        )


def _trust(context: ssl.SSLContext, cafile: str) -> None:
    try:
        context.load_verify_locations(cafile)
    except OSError:
        raise BadCertificate(f"{cafile} holds no PEM certificate to believe in.") from None


def _show(context: ssl.SSLContext, certfile: str, keyfile: str | None, key_password: str | None) -> None:
    try:
        context.load_cert_chain(certfile, keyfile, password=key_password or "")  # without one OpenSSL asks the terminal
    except OSError:
        raise BadCertificate(
            f"{certfile} and {keyfile or certfile} are not a PEM certificate and its key,"
            f" or the password is not the key's."
        ) from None
