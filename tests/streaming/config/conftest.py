"""Certificates that the tests of settings share."""

import pytest
import trustme

from tests.system.secured import Certificates, certificates


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def files(authority: trustme.CA, tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Return certificates of the gateway, or of any client."""
    return certificates(authority, tmp_path_factory.mktemp("files") / "here", "127.0.0.1", "kafka.example")


@pytest.fixture(scope="module")
def strangers(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Return certificates of an untrusted authority."""
    return certificates(trustme.CA(), tmp_path_factory.mktemp("strangers") / "here", "127.0.0.1")
