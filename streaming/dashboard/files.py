"""The page's files from the package. The ETag of a file is a hash of its content, so a browser loads it once."""

import hashlib
from importlib.resources import files
from typing import NamedTuple

CONTENT_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".md": "text/markdown; charset=utf-8",
}


class File(NamedTuple):
    """A file, and the ETag of its content."""

    body: bytes
    kind: str
    etag: str


def read_all() -> dict[str, File]:
    """Return the files by name. A request for another name finds nothing, whatever path it contains."""
    found = {}
    for file in files("streaming.dashboard").joinpath("static").iterdir():
        suffix = file.name[file.name.rfind(".") :]
        if suffix in CONTENT_TYPES:
            body = file.read_bytes()
            found[file.name] = File(body, CONTENT_TYPES[suffix], f'"{hashlib.sha256(body).hexdigest()[:32]}"')
    return found
