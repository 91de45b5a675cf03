"""Two drivers that plan the same batch in the same instant, again and again.

RACES=500 python -m pytest tests/stores/test_checkpoint_files.py tests/yarn/test_hdfs.py -k same_instant
"""

import os
import threading
import uuid
from collections import Counter
from collections.abc import Callable
from typing import Any

from py4j.protocol import Py4JJavaError

from streaming.query.spark.checkpoint_files import DRIVER, NAME
from streaming.query.spark.spark_config import CHECKPOINTING
from tests.system.waiting import HANG_S

RACES = int(os.environ.get("RACES", "8"))
"""The number of races: RACES=500 in the environment takes four minutes on a busy machine."""

EXISTS = "org.apache.hadoop.fs.FileAlreadyExistsException"


def ours(jvm: Any, path: Any, configuration: Any) -> Any:
    """Return the manager with which Spark writes a checkpoint on a store without a rename."""
    return getattr(jvm, NAME)(path, configuration)


def sparks_own(jvm: Any, path: Any, configuration: Any) -> Any:
    """Return the manager that Spark chooses for a path by itself."""
    package = jvm
    for name in CHECKPOINTING.split("."):
        package = getattr(package, name)
    return getattr(getattr(package, "CheckpointFileManager$"), "MODULE$").create(path, configuration)


class Files:
    """A driver's manager of the files of a folder. Each manager has connections of its own.

    Args:
        make: Makes the manager, from Java's process, the folder and Hadoop's configuration.
    """

    def __init__(self, spark: Any, folder: str, make: Callable[[Any, Any, Any], Any] = ours) -> None:
        jvm, self._folder = spark.sparkContext._jvm, folder
        self._path = jvm.org.apache.hadoop.fs.Path
        configuration = jvm.org.apache.hadoop.conf.Configuration(spark.sparkContext._jsc.hadoopConfiguration())
        configuration.set(DRIVER, uuid.uuid4().hex)
        self.manager = make(jvm, self._path(folder), configuration)

    def write(self, name: str, content: bytes, *, replaces: bool = False) -> str:
        """Write a file, and return the class of the error; an empty text if there is none."""
        return self.begin(name, content, replaces=replaces)()

    def begin(self, name: str, content: bytes, *, replaces: bool = False) -> Callable[[], str]:
        """Begin to write a file, and return a function that finishes it, as `write` does."""
        stream = self.manager.createAtomic(self._path(self._folder, name), replaces)
        stream.write(content)

        def finish() -> str:
            try:
                stream.close()
            except Py4JJavaError as error:
                stream.cancel()
                return str(error.java_exception.getClass().getName())
            return ""

        return finish

    def read(self, name: str) -> bytes:
        return bytes(self.manager.open(self._path(self._folder, name)).readAllBytes())

    def exists(self, name: str) -> bool:
        return bool(self.manager.exists(self._path(self._folder, name)))

    def delete(self, name: str) -> None:
        self.manager.delete(self._path(self._folder, name))

    def abandon(self, name: str, *, replaces: bool) -> None:
        stream = self.manager.createAtomic(self._path(self._folder, name), replaces)
        stream.write(b"half")
        stream.cancel()
        stream.close()


def race(drivers: list[Files], races: int) -> Counter[str]:
    """Return how often the races of two drivers for the plans of some batches ended in each way.

    The only right way is `one`: a write succeeded, the other one was refused, and the file is that of the former.
    """
    return Counter(_race(drivers, f"offsets/{batch}") for batch in range(races))


def _race(drivers: list[Files], plan: str) -> str:
    barrier = threading.Barrier(len(drivers))
    results = dict[int, str]()

    def write(number: int) -> None:
        barrier.wait(HANG_S)
        results[number] = drivers[number].write(plan, b"%d" % number)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(len(drivers))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(HANG_S)
    winners = [b"%d" % number for number, error in results.items() if not error]
    if sorted(results.values()) == ["", EXISTS] and drivers[0].read(plan) == winners[0]:
        return "one"
    return f"{sorted(results.values())}, and the file is one of {winners}: {drivers[0].read(plan)!r}"
