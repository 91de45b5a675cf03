"""The objects below a prefix of the test server's bucket, as a folder that the tests of local checkpoints can read."""

import urllib.parse
import urllib.request
from pathlib import Path
from xml.etree import ElementTree

from tests.stores.server import BUCKET, Server
from tests.system.conftest import Service
from tests.system.waiting import HANG_S

_HEADERS = {
    "Authorization": "AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/s3/aws4_request,"
    " SignedHeaders=host, Signature=0",
    "Content-Type": "application/octet-stream",
}
"""The server checks no signature, and shows its objects only to a client that sends one."""

_NAMES = "{http://s3.amazonaws.com/doc/2006-03-01/}"


class Objects:
    """A local copy of all objects below a prefix.

    Args:
        folder: The place of the copy.
    """

    def __init__(self, server: Server, prefix: str, folder: Path) -> None:
        self._url, self._prefix, self.folder = f"{server.url}/{BUCKET}", prefix, folder
        self._versions: dict[str, str] = {}

    @property
    def address(self) -> str:
        return f"s3a://{BUCKET}/{self._prefix}"

    def copied(self) -> Path:
        """Copy the objects that have changed, delete the copies of those that are gone, and return the folder."""
        found = self._listed()
        for key in self._versions.keys() - found.keys():
            (self.folder / key).unlink(missing_ok=True)
        for key in [key for key, version in found.items() if self._versions.get(key) != version]:
            (self.folder / key).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / key).write_bytes(self._send("GET", f"/{self._prefix}/{key}"))
        self._versions = found
        for name in ("offsets", "commits"):
            (self.folder / "query" / name).mkdir(parents=True, exist_ok=True)
        return self.folder

    def upload(self) -> None:
        """Write every file of the folder to the store."""
        for file in self.folder.rglob("*"):
            if file.is_file():
                self._send("PUT", f"/{self._prefix}/{file.relative_to(self.folder).as_posix()}", file.read_bytes())

    def _send(self, method: str, path: str, content: bytes | None = None) -> bytes:
        request = urllib.request.Request(self._url + path, content, _HEADERS, method=method)
        with urllib.request.urlopen(request, timeout=HANG_S) as answer:
            return bytes(answer.read())

    def _listed(self) -> dict[str, str]:
        """Return the version of each object, by its key without the prefix."""
        found, token = dict[str, str](), ""
        while True:
            asked = {"list-type": "2", "prefix": f"{self._prefix}/", **({"continuation-token": token} if token else {})}
            page = ElementTree.fromstring(self._send("GET", f"?{urllib.parse.urlencode(asked)}"))
            for item in page.iter(f"{_NAMES}Contents"):
                key = item.findtext(f"{_NAMES}Key", "").removeprefix(f"{self._prefix}/")
                if key and not key.endswith("/"):
                    found[key] = item.findtext(f"{_NAMES}ETag", "") + item.findtext(f"{_NAMES}LastModified", "")
            token = page.findtext(f"{_NAMES}NextContinuationToken", "")
            if not token:
                return found


class StoredService(Service):
    """A service whose checkpoint is on the store: each look at its folder copies what has changed."""

    objects: Objects

    @classmethod
    def of(cls, service: Service, objects: Objects) -> "StoredService":
        stored = cls(service.process, service.settings, objects.folder, service.ready_file, service.log_file)
        stored.objects = objects
        return stored

    @property
    def checkpoint(self) -> Path:  # type: ignore[override]
        return self.objects.copied()

    @checkpoint.setter
    def checkpoint(self, _: Path) -> None: ...
