"""The programs outside Python that some tests and benchmarks need, and the command that installs each of them."""

import shutil

import pytest

INSTALLED_BY = {
    "chromium": "apt-get install chromium",
    "cc": "apt-get install gcc libc6-dev",
    "helm": "go install helm.sh/helm/v3/cmd/helm@v3.18.6",
    "ip": "apt-get install iproute2",
    "javac": "apt-get install openjdk-17-jdk-headless",
    "nsenter": "apt-get install util-linux",
    "node": "apt-get install nodejs",
    "npm": "apt-get install npm",
    "systemd-analyze": "apt-get install systemd",
}
MISSING = "This machine has no "
"""The words with which each reason of a missing program begins."""


def missing(program: str) -> str:
    """Return the sentence for a program that the machine does not have."""
    return f"{MISSING}{program}: {INSTALLED_BY[program]}"


def needs(program: str) -> pytest.MarkDecorator:
    """Return the mark that skips a test if the machine does not have the program."""
    return pytest.mark.skipif(shutil.which(program) is None, reason=missing(program))


def needed(program: str) -> str:
    """Return the path of a program. Skip the test if the machine does not have the program."""
    found = shutil.which(program)
    if found is None:
        pytest.skip(missing(program))
    return found
