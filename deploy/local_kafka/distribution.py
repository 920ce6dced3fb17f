"""Find Apache Kafka's jars: ``KAFKA_HOME``, the cache, or Maven Central."""

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from engramlog.deploy.local_kafka.errors import DistributionUnavailable
from engramlog.deploy.local_kafka.java import Java
from engramlog.deploy.local_kafka.maven import POM, copy_jars

KAFKA_VERSION = "4.3.1"
OLDEST_KAFKA = (4, 2)
_MARKER = "complete.json"

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Distribution:
    """A folder of jars that is a whole broker.

    Attributes:
        libs: The folder; its class path is ``libs/*``.
        version: Kafka's version, such as ``4.3.1``.
    """

    libs: Path
    version: str


def parse_version(version: str) -> tuple[int, ...]:
    """Return the leading numbers of a version, for comparing: ``4.3.1-rc0`` gives ``(4, 3, 1)``."""
    numbers = re.match(r"\d+(\.\d+)*", version)
    return tuple(int(n) for n in numbers[0].split(".")) if numbers else ()


def cache_root(environ: Mapping[str, str] | None = None) -> Path:
    """Return where downloads are kept: ``engramlog`` in ``$XDG_CACHE_HOME``, which defaults to ``~/.cache``."""
    env = os.environ if environ is None else environ
    return Path(env.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "engramlog"


def find_distribution(java: Java, progress: Progress, environ: Mapping[str, str] | None = None) -> Distribution:
    """Find Apache Kafka, and fetch it once when it is not on this machine (about 45 MB). Blocks.

    Args:
        java: What runs Maven.
        progress: Called with one line per step, from the calling thread.
        environ: The process's environment by default. ``KAFKA_HOME`` is an unpacked release and wins;
            ``XDG_CACHE_HOME`` moves the cache; ``ENGRAMLOG_MAVEN_CENTRAL`` is another base URL for Maven Central.

    Raises:
        DistributionUnavailable: It cannot be had; the message holds what Maven said.
    """
    env = os.environ if environ is None else environ
    if home := env.get("KAFKA_HOME"):
        return _of_kafka_home(Path(home))
    folder = cache_root(env) / "kafka" / KAFKA_VERSION
    if not is_complete(folder):
        fetch = partial(
            copy_jars, kafka_version=KAFKA_VERSION, java=java, cache=cache_root(env), progress=progress, environ=env
        )
        _install(folder, fetch)
    return Distribution(folder / "libs", KAFKA_VERSION)


def is_complete(folder: Path) -> bool:
    """Tell whether a cached distribution was wholly written from today's pom, and nothing of it was lost since."""
    try:
        marker = json.loads((folder / _MARKER).read_text())
        return marker["pom"] == _pom_digest() and all(
            (folder / "libs" / jar).stat().st_size == size for jar, size in marker["jars"].items()
        )
    except (OSError, ValueError, KeyError):
        return False


def _install(folder: Path, fill: Callable[[Path], None]) -> None:
    """Fill a folder beside the target, mark it complete, and rename it into place.

    Whoever comes second waits for the first, and a killed download leaves only a folder that the next one removes.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _locked(folder.parent / f"{folder.name}.lock"):
            for left in folder.parent.glob(f".{folder.name}.*"):
                shutil.rmtree(left, ignore_errors=True)
            if is_complete(folder):  # another process was faster
                return
            part = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
            fill(part / "libs")
            jars = {jar.name: jar.stat().st_size for jar in sorted((part / "libs").glob("*.jar"))}
            (part / _MARKER).write_text(json.dumps({"pom": _pom_digest(), "jars": jars}, indent=2))
            if folder.exists():
                folder.rename(part.with_name(f"{part.name}.old"))
            part.rename(folder)
            shutil.rmtree(part.with_name(f"{part.name}.old"), ignore_errors=True)
    except OSError as error:
        raise DistributionUnavailable(f"cannot write Apache Kafka to {folder}: {error}") from error


def _of_kafka_home(home: Path) -> Distribution:
    cores = sorted((home / "libs").glob("kafka_2.13-[0-9]*.jar"))
    versions = [found[1] for core in cores if (found := re.fullmatch(r"kafka_2\.13-(\d+(?:\.\d+)+)\.jar", core.name))]
    if not versions:
        raise DistributionUnavailable(
            f"KAFKA_HOME={home} has no libs/kafka_2.13-*.jar; unset it to let Maven fetch one"
        )
    if parse_version(versions[-1]) < OLDEST_KAFKA:
        wanted = ".".join(map(str, OLDEST_KAFKA))
        raise DistributionUnavailable(f"KAFKA_HOME={home} is Apache Kafka {versions[-1]}; {wanted} or newer is needed")
    return Distribution(home / "libs", versions[-1])


def _pom_digest() -> str:
    return hashlib.sha256(POM.read_bytes()).hexdigest()


@contextlib.contextmanager
def _locked(lock: Path) -> Iterator[None]:
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
