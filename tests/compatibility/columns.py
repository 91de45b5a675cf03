"""The combinations of versions, and what each of them needs: an interpreter, constraints, and the jars of a broker."""

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from streaming.embedded import BROKER, Bundle
from tests.deploy.reading import ROOT

HERE = Path(__file__).parent
NEWEST = "4.4"
BROKERS = {
    **{version: Bundle(f"broker-{version}", f"a broker of Kafka {version}", HERE) for version in ("3.9", "4.0", "4.3")},
    NEWEST: BROKER,
}
PYENV = Path.home() / ".pyenv" / "versions"


@dataclass(frozen=True)
class Column:
    """One combination of versions. Each column differs from the defaults in one of them."""

    python: str = "3.11"
    pyspark: str = "4.2"
    kafka: str = NEWEST

    def __str__(self) -> str:
        return f"Python {self.python}, pyspark {self.pyspark}, Kafka {self.kafka}"

    def interpreter(self) -> Path | None:
        """Return a Python of this version; None if the machine has none."""
        found = shutil.which(f"python{self.python}")
        candidates = [*([Path(found)] if found else []), *sorted(PYENV.glob(f"{self.python}.*/bin/python"))]
        return next((each for each in candidates if _is_python(each, self.python)), None)

    def constraints(self, folder: Path) -> Path:
        """Write the project's constraints with this version of pyspark into the folder, and return the file."""
        file = folder / "constraints.txt"
        text = (ROOT / "constraints.txt").read_text()
        file.write_text(
            re.sub(rf"(?m)^pyspark==(?!{re.escape(self.pyspark)}\.).*$", f"pyspark=={self.pyspark}.*", text)
        )
        return file


def _is_python(path: Path, version: str) -> bool:
    done = subprocess.run([path, "-V"], capture_output=True, text=True, check=False)
    return done.stdout.startswith(f"Python {version}.")


COLUMNS = [
    Column(),
    *(Column(python=version) for version in ("3.12", "3.13")),
    Column(pyspark="4.0"),
    *(Column(kafka=version) for version in ("3.9", "4.0", "4.3")),
]
