"""TLS contexts from PEM files, with one sentence if the files are not usable. The oldest allowed version is TLS 1.2."""

import re
import ssl
from base64 import b64decode
from pathlib import Path

from streaming.errors import UserError

_PLAIN_KEY = "-----BEGIN PRIVATE KEY-----"
_ENCRYPTED_KEY = re.compile("-----BEGIN ENCRYPTED PRIVATE KEY-----([A-Za-z0-9+/=\\s]+)-----END")
_PBES2 = bytes.fromhex("06092a864886f70d01050d")
"""1.2.840.113549.1.5.13: OpenSSL's default encryption of keys, which Java 17 does not know by a name."""


class BadCertificate(UserError):
    """A file contains no certificate or key, or the two do not match."""


def client_context(
    cafile: str | None,
    certfile: str | None = None,
    keyfile: str | None = None,
    key_password: str | None = None,
    *,
    check_hostname: bool = True,
) -> ssl.SSLContext:
    """Return the TLS context of our own connections. It always verifies the server's certificate.

    The verified name is the host of the connection, which asyncio uses as `server_hostname` by default.

    Args:
        cafile: The trusted certificates; None stands for the system's.
        certfile: Our own certificate with its chain; `keyfile` is its key unless that is in the same file.

    Raises:
        BadCertificate: A file is not usable.
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
    """Return the TLS context of clients' connections to us.

    Args:
        certfile: Our certificate with its chain; `keyfile` is its key unless that is in the same file.
        client_cafile: The authorities of clients' certificates; None means that clients need no certificate.

    Raises:
        BadCertificate: A file is not usable.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    _show(context, certfile, keyfile, key_password)
    if client_cafile:
        context.verify_mode = ssl.CERT_REQUIRED
        _trust(context, client_cafile)
    return context


def check_java_reads(keyfile: str, *, is_encrypted: bool) -> None:
    """Check that Kafka's Java clients can read a key. They require PKCS#8 without PBES2; OpenSSL also reads others.

    Raises:
        BadCertificate: The key has another form; the text names the command that converts it.
    """
    text = Path(keyfile).read_text("ascii", "replace")
    if is_encrypted:
        found = _ENCRYPTED_KEY.search(text)
        will_do, how = found is not None and _PBES2 not in b64decode(found[1]), "-v1 PBE-SHA1-3DES"
    else:
        will_do, how = _PLAIN_KEY in text, "-nocrypt"
    if not will_do:
        raise BadCertificate(
            f"{keyfile} has no key that Spark's Kafka clients can read: convert it by 'openssl pkcs8 -topk8 {how}'."
        )


def _trust(context: ssl.SSLContext, cafile: str) -> None:
    try:
        context.load_verify_locations(cafile)
    except OSError:
        raise BadCertificate(f"{cafile} contains no PEM certificate.") from None


def _show(context: ssl.SSLContext, certfile: str, keyfile: str | None, key_password: str | None) -> None:
    try:
        context.load_cert_chain(certfile, keyfile, password=key_password or "")  # else OpenSSL prompts for a password
    except OSError:
        raise BadCertificate(
            f"{certfile} and {keyfile or certfile} are not a PEM certificate and its key,"
            f" or the password is not the key's."
        ) from None
