"""Tokens that identify our own processes, requested with a client's id and secret, and cached for a part of their life.

kafka-python gets its tokens from here. Kafka's Java clients and librdkafka request their own in the same way: id and
secret go unencoded into HTTP's basic authentication.

Source: RFC 6749 4.4 (client credentials) and 2.3.1, RFC 7519 4.1.4 (`exp`); KIP-768.
"""

import base64
import json
import logging
import re
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from http import HTTPStatus
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import HTTPRedirectHandler, HTTPSHandler, OpenerDirector, Request, build_opener

from kafka.net.sasl.oauth import AbstractTokenProvider

from streaming.config.tls import client_context
from streaming.errors import Exit, UserError

log = logging.getLogger(__name__)

TOKEN_WAIT_S = 10.0
ANSWER_BYTES_MAX = 65_536
WORN_AFTER = 0.8
"""The part of a token's life after which another token is requested; Kafka's `sasl.login.refresh.window.factor`."""

RETRY_WAIT_S = 5.0
"""The wait before the next request to an endpoint that has failed, while the present token is still valid."""

_ERROR_NAME = re.compile(r"[a-z_]{1,40}")
_PASSING = (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS)


class TokenUnavailable(UserError):
    """The token endpoint does not respond, or is temporarily unavailable."""


class TokenRefused(UserError):
    """The token endpoint refuses the client, or its response contains no token."""

    exit_code = Exit.NEEDS_A_PERSON


class Tokens(AbstractTokenProvider):  # type: ignore[misc]
    """One client's tokens. Any number of threads may use them.

    Args:
        settings: The client's `sasl_oauth_*` settings under the names in `spellings`, with unmasked secrets.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._url, self._client_id = settings["sasl_oauth_token_url"], settings["sasl_oauth_client_id"]
        self._request = _request(settings)
        self._opener = _opener(settings)
        self._lock = threading.Lock()
        self._token = ""
        self._ends_s = self._worn_s = float("-inf")

    def __repr__(self) -> str:
        return f"<Tokens of {self._client_id!r} by {self._url}>"

    def token(self) -> str:
        """Return a valid token.

        Raises:
            TokenUnavailable: The endpoint does not answer.
            TokenRefused: The endpoint refuses the client, or its response is not usable.
        """
        with self._lock:
            if time.monotonic() >= self._worn_s:
                self._renew()
            return self._token

    def _renew(self) -> None:
        asked_s = time.monotonic()
        try:
            token = self._requested()
            life_s = self._life_of(token)
        except UserError as error:
            if asked_s >= self._ends_s:
                raise
            log.warning("the present token is used further: %s", error)
            self._worn_s = min(asked_s + RETRY_WAIT_S, self._ends_s)
            return
        self._token, self._ends_s, self._worn_s = token, asked_s + life_s, asked_s + WORN_AFTER * life_s

    def _requested(self) -> str:
        try:
            with self._opener.open(self._request, timeout=TOKEN_WAIT_S) as answer:
                said = answer.read(ANSWER_BYTES_MAX)
        except HTTPError as error:
            with error:
                raise self._refusal(error) from None
        except (OSError, ValueError) as error:
            why = getattr(error, "reason", error)
            raise TokenUnavailable(
                f"The token endpoint {self._url} does not answer ({why}): check that it runs, or correct"
                f" sasl_oauth_token_url and sasl_oauth_cafile."
            ) from None
        with suppress(ValueError, TypeError, KeyError):
            token = json.loads(said)["access_token"]
            if isinstance(token, str) and token.isascii() and token.isprintable():
                return token
        raise self._useless("no access_token")

    def _refusal(self, error: HTTPError) -> UserError:
        if error.code in _PASSING or error.code >= HTTPStatus.INTERNAL_SERVER_ERROR:
            return TokenUnavailable(
                f"The token endpoint {self._url} does not work (HTTP status {error.code}): repair it, and start again."
            )
        return TokenRefused(
            f"The token endpoint {self._url} refuses the client {self._client_id} ({_name_of(error)}): correct"
            f" sasl_oauth_client_id, its secret, or sasl_oauth_scope."
        )

    def _life_of(self, token: str) -> float:
        """Return the seconds until a token expires. A later step of this machine's clock does not change them."""
        with suppress(ValueError, TypeError, KeyError, IndexError):
            claims = token.split(".")[1]
            ends_s = float(json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))["exp"])
            if (life_s := ends_s - time.time()) <= 0:
                raise self._useless("a token that has expired already; compare the clocks")
            return life_s
        raise self._useless("no JSON Web Token with an expiry, which Kafka requires")

    def _useless(self, what: str) -> TokenRefused:
        return TokenRefused(f"The token endpoint {self._url} returns {what}: correct it, or sasl_oauth_token_url.")


class _NoRedirects(HTTPRedirectHandler):
    """A handler that follows no redirect, so that the secret reaches only the endpoint in the settings."""

    def redirect_request(self, *_: object) -> None:
        return None


def _opener(settings: Mapping[str, Any]) -> OpenerDirector:
    return build_opener(_NoRedirects, HTTPSHandler(context=client_context(settings.get("sasl_oauth_cafile"))))


def _request(settings: Mapping[str, Any]) -> Request:
    form = {"grant_type": "client_credentials"}
    if "sasl_oauth_scope" in settings:
        form["scope"] = settings["sasl_oauth_scope"]
    known_by = f"{settings['sasl_oauth_client_id']}:{settings['sasl_oauth_client_secret']}".encode()
    headers = {"Accept": "application/json", "Authorization": f"Basic {base64.b64encode(known_by).decode()}"}
    return Request(settings["sasl_oauth_token_url"], urlencode(form).encode(), headers)  # noqa: S310  (https, or loopback)


def _name_of(error: HTTPError) -> str:
    """Return the endpoint's error code (RFC 6749 5.2) if it is one word, which cannot contain our secrets; else the
    HTTP status."""
    with suppress(OSError, ValueError, TypeError, KeyError):
        if _ERROR_NAME.fullmatch(name := json.loads(error.read(ANSWER_BYTES_MAX))["error"]):
            return str(name)
    return f"HTTP status {error.code}"
