"""The mark of a coordinator that runs on a checkpoint, for commands that must not change a checkpoint in use.

Each driver holds a shared lock of the operating system on a file in the checkpoint's folder. So no driver, not even a
suspended one, prevents another from starting. The lock ends with its process, however the process ends. A command that
changes the checkpoint needs an exclusive lock. A folder that is not on a file system of this machine has no mark.
"""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

from streaming.errors import InUse

MARK = "running.lock"


def local_folder(path: str) -> Path | None:
    """Return the folder of a path on a file system of this machine; None if the path has another scheme."""
    parts = urlsplit(path)
    if parts.scheme not in ("", "file"):
        return None
    return Path(parts.path)


class Mark:
    """The mark that this process runs on the checkpoint, until `remove` or the end of the process."""

    def __init__(self) -> None:
        self._file: IO[bytes] | None = None

    def set(self, checkpoint: str) -> None:
        """Acquire the shared lock.

        Raises:
            InUse: A command is changing the checkpoint at this moment.
        """
        if (folder := local_folder(checkpoint)) is None:
            return
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._file = (folder / MARK).open("ab")
            fcntl.flock(self._file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InUse(f"A command is changing the checkpoint {checkpoint}: start again when it is done.") from None
        except OSError:
            self.remove()  # the next writer to the folder reports that it cannot be written

    def remove(self) -> None:
        """Release the lock."""
        if self._file is not None:
            self._file.close()
            self._file = None


@contextmanager
def alone(checkpoint: str) -> Iterator[bool]:
    """Prevent coordinators from starting on a checkpoint. Yield False if its folder is not on this machine.

    Raises:
        InUse: A coordinator runs on the checkpoint, or the mark cannot be written.
    """
    if (folder := local_folder(checkpoint)) is None:
        yield False
        return
    try:
        file = (folder / MARK).open("ab")
    except OSError as error:
        raise InUse(f"{folder / MARK} cannot be written ({error.strerror}), so its use cannot be checked.") from error
    with file:
        _lock(file, checkpoint)
        yield True


@contextmanager
def stopped(checkpoint: str) -> Iterator[bool]:
    """Prevent coordinators from starting on a checkpoint while a command reads it, and write nothing.

    Yield False if the folder is not on this machine. A folder without the mark, such as a back-up, cannot be locked.

    Raises:
        InUse: A coordinator runs on the checkpoint, or the mark cannot be read.
    """
    if (folder := local_folder(checkpoint)) is None:
        yield False
        return
    try:
        file = (folder / MARK).open("rb")
    except FileNotFoundError:
        yield True
        return
    except OSError as error:
        raise InUse(f"{folder / MARK} cannot be read ({error.strerror}), so its use cannot be checked.") from error
    with file:
        _lock(file, checkpoint)
        yield True


def _lock(file: IO[bytes], checkpoint: str) -> None:
    """Acquire the exclusive lock.

    Raises:
        InUse: A coordinator holds the shared one.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise InUse(f"A coordinator runs on the checkpoint {checkpoint}: stop it first.") from None
