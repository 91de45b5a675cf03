"""A local token endpoint for one client (RFC 6749 4.4), which signs its tokens as brokers require.

with TokenEndpoint(folder) as endpoint, broker_by_token(folder, endpoint) as secured:
    Settings.load(**secured.access("SASL_SSL") | endpoint.access())
"""

import base64
import json
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qs

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.system.secured import Certificates, SecuredBroker, secured_broker

CLIENT_ID = "ana's coordinator"
SECRET = r'a "quoted"; \ secret,=%+é'
SCOPE = "kafka groups"
SUBJECT = "service-account-ana"
AUDIENCE = "brokers"
ISSUER = "https://tokens.example"
KEY_ID = "the-key"
_OAUTH = "org.apache.kafka.common.security.oauthbearer"
_ALLOWED = "org.apache.kafka.sasl.oauthbearer.allowed"


class TokenEndpoint(ThreadingHTTPServer):
    """A token endpoint that serves for as long as its `with` block runs, with TLS if it is given certificates.

    `lifetime_s` and `audience` apply to the next tokens. `broken` is a response to send instead of a token.
    """

    daemon_threads = True

    def __init__(self, folder: Path, own: Certificates | None = None) -> None:
        super().__init__(("127.0.0.1", 0), _Exchange)
        self.own, self.lifetime_s, self.audience = own, 300.0, AUDIENCE
        self.broken: tuple[int, bytes] | None = None
        self.asked: list[dict[str, list[str]]] = []
        self.given: list[str] = []
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self.jwks_file = folder / "jwks.json"
        public: dict[str, Any] = jwt.algorithms.RSAAlgorithm.to_jwk(self._key.public_key(), as_dict=True)
        self.jwks_file.write_text(json.dumps({"keys": [{**public, "kid": KEY_ID, "alg": "RS256", "use": "sig"}]}))
        if own:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(own.cert, own.key)
            self.socket = context.wrap_socket(self.socket, server_side=True)

    def __enter__(self) -> Self:
        threading.Thread(target=self.serve_forever, name="token endpoint", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()

    @property
    def url(self) -> str:
        return f"{'https' if self.own else 'http'}://127.0.0.1:{self.server_port}/token"

    def access(self) -> dict[str, str]:
        """Return the settings with which a client gets its tokens from this endpoint."""
        settings = {
            "sasl_mechanism": "OAUTHBEARER",
            "sasl_oauth_token_url": self.url,
            "sasl_oauth_client_id": CLIENT_ID,
            "sasl_oauth_client_secret": SECRET,
            "sasl_oauth_scope": SCOPE,
        }
        return settings | ({"sasl_oauth_cafile": str(self.own.ca)} if self.own else {})

    def token(self) -> str:
        now_s = int(time.time())
        claims = {
            "iss": ISSUER,
            "sub": SUBJECT,
            "aud": self.audience,
            "iat": now_s,
            "exp": now_s + self.lifetime_s,
            "scope": SCOPE,
        }
        return jwt.encode(claims, self._key, algorithm="RS256", headers={"kid": KEY_ID})

    def answer(self, authorization: str | None, form: dict[str, list[str]]) -> tuple[int, bytes]:
        """Return the status and the body of the response to a request."""
        self.asked.append(form)
        known_by = base64.b64encode(f"{CLIENT_ID}:{SECRET}".encode()).decode()
        if self.broken:
            return self.broken
        if authorization != f"Basic {known_by}" or form.get("grant_type") != ["client_credentials"]:
            return 401, b'{"error": "invalid_client"}'
        self.given.append(self.token())
        return 200, json.dumps({"access_token": self.given[-1], "token_type": "Bearer", "expires_in": 300}).encode()


@contextmanager
def broker_by_token(folder: Path, endpoint: TokenEndpoint, **properties: str) -> Iterator[SecuredBroker]:
    """Run a broker that accepts an endpoint's tokens as well as its own users' passwords.

    Args:
        properties: Kafka's broker properties, further ones.
    """
    keys = endpoint.jwks_file.as_uri()
    believing = {
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": keys,
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "sasl.oauthbearer.expected.issuer": ISSUER,
    }
    for listener in ("sasl_plaintext", "sasl_ssl"):
        its = f"listener.name.{listener}.oauthbearer.sasl"
        believing[f"{its}.jaas.config"] = f"{_OAUTH}.OAuthBearerLoginModule required;"
        believing[f"{its}.server.callback.handler.class"] = f"{_OAUTH}.OAuthBearerValidatorCallbackHandler"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JDK_JAVA_OPTIONS", f"-D{_ALLOWED}.urls={keys} -D{_ALLOWED}.files={endpoint.jwks_file}")
        with secured_broker(folder, **believing, **properties) as broker:
            patch.undo()
            yield broker


class _Exchange(BaseHTTPRequestHandler):
    server: TokenEndpoint

    def do_POST(self) -> None:
        form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        status, body = self.server.answer(self.headers["Authorization"], form)
        self.send_response(status)
        if 300 <= status < 400:
            self.send_header("Location", self.server.url)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Write no log."""
