"""The page's files, as they are in the package. Each is named by its hash, so a browser fetches it once."""

import hashlib
from importlib.resources import files
from typing import NamedTuple

KINDS = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".md": "text/markdown; charset=utf-8",
}


class File(NamedTuple):
    """A file, and the ETag of what is in it."""

    body: bytes
    kind: str
    etag: str


def read_all() -> dict[str, File]:
    """Read them, by name. What is asked for by another name is not there, wherever it may lead."""
    found = {}
    for file in files("streaming.dashboard").joinpath("static").iterdir():
        suffix = file.name[file.name.rfind(".") :]
        if suffix in KINDS:
            body = file.read_bytes()
            found[file.name] = File(body, KINDS[suffix], f'"{hashlib.sha256(body).hexdigest()[:32]}"')
    return found
