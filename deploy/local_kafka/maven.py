"""Let Maven fetch Apache Kafka; fetch Maven itself when the machine has none."""

import hashlib
import io
import os
import shutil
import subprocess
import tarfile
import tempfile
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from xml.sax.saxutils import escape

from engramlog.deploy.local_kafka.errors import DistributionUnavailable
from engramlog.deploy.local_kafka.java import Java

POM = Path(__file__).with_name("pom.xml")
MAVEN_VERSION = "3.9.16"
MAVEN_SHA512 = (
    "831a8591fe20c8243b1dbe7d71e3244f31d1665b0804b2e825e38cbbe5ce0caf"
    "b8338851f90780735568773e0a6cd07bbec107cda0b896b008b861075358b6f6"
)
CENTRAL = "https://repo1.maven.org/maven2"
_DOWNLOAD_TIMEOUT_S = 60
_MAVEN_TIMEOUT_S = 900
_SETTINGS = """<settings><mirrors><mirror>
<id>engramlog-central</id><mirrorOf>central</mirrorOf><url>{url}</url>
</mirror></mirrors></settings>
"""


def copy_jars(
    libs: Path,
    *,
    kafka_version: str,
    java: Java,
    cache: Path,
    progress: Callable[[str], None],
    environ: Mapping[str, str] | None = None,
) -> None:
    """Copy a broker's jars from Maven Central, or from Maven's own cache, into a folder. Blocks, for minutes at worst.

    Args:
        libs: The folder to fill; made by Maven.
        kafka_version: Which Apache Kafka.
        java: What runs Maven.
        cache: Where Maven itself is kept when ``mvn`` is not on the path.
        progress: Called with one line per step.
        environ: The process's environment by default. With ``ENGRAMLOG_MAVEN_CENTRAL``, Maven Central is read from
            that URL, save where the user's own Maven settings say otherwise.

    Raises:
        DistributionUnavailable: Maven cannot be had, fails, or takes longer than 15 minutes.
    """
    env = os.environ if environ is None else environ
    maven = shutil.which("mvn", path=env.get("PATH", "")) or _own_maven(cache, env, progress)
    progress(f"fetching Apache Kafka {kafka_version} with {maven}")
    with tempfile.TemporaryDirectory(prefix="engramlog-maven-") as scratch:
        command = [str(maven), "-B", "-q", "-f", str(POM), "dependency:copy-dependencies"]

        command += ["-DincludeScope=runtime", f"-Dkafka.version={kafka_version}", f"-DoutputDirectory={libs}"]
        if url := env.get("ENGRAMLOG_MAVEN_CENTRAL"):
            settings = Path(scratch) / "settings.xml"
            settings.write_text(_SETTINGS.format(url=escape(url)))
            command += ["-gs", str(settings)]
        try:
            run = subprocess.run(  # noqa: S603 - Maven, with our own words
                command,
                env={**env, "JAVA_HOME": str(java.home)},
                cwd=scratch,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=_MAVEN_TIMEOUT_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise DistributionUnavailable(f"Maven could not fetch Apache Kafka {kafka_version}: {error}") from error
    if run.returncode != 0 or not list(libs.glob(f"kafka_2.13-{kafka_version}.jar")):
        said = "\n".join(run.stdout.splitlines()[-15:])
        raise DistributionUnavailable(f"Maven could not fetch Apache Kafka {kafka_version}; its last words:\n{said}")


def _own_maven(cache: Path, environ: Mapping[str, str], progress: Callable[[str], None]) -> Path:
    """Return a Maven in the cache, downloaded and checked when it is not there yet."""
    home = cache / "maven" / f"apache-maven-{MAVEN_VERSION}"
    if (home / "bin" / "mvn").exists():  # renamed into place as a whole
        return home / "bin" / "mvn"
    name = f"apache-maven-{MAVEN_VERSION}-bin.tar.gz"
    base = environ.get("ENGRAMLOG_MAVEN_CENTRAL") or CENTRAL
    url = f"{base.rstrip('/')}/org/apache/maven/apache-maven/{MAVEN_VERSION}/{name}"
    progress(f"there is no mvn on PATH: downloading Maven {MAVEN_VERSION} from {url}")
    try:
        with urllib.request.urlopen(url, timeout=_DOWNLOAD_TIMEOUT_S) as response:  # noqa: S310 - the user's own mirror
            archive = response.read()
    except (OSError, ValueError) as error:
        raise DistributionUnavailable(f"cannot download Maven from {url}: {error}; or put mvn on the PATH") from error
    found = hashlib.sha512(archive).hexdigest()
    if found != MAVEN_SHA512:
        raise DistributionUnavailable(f"{url} is not Maven {MAVEN_VERSION}: SHA-512 {found}, expected {MAVEN_SHA512}")
    home.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".unpack-", dir=home.parent) as scratch:
        with tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz") as tar:
            # Python 3.11.3 and older have no filters; the hash has already vouched for the archive.
            tar.extraction_filter = getattr(tarfile, "data_filter", lambda member, _path: member)
            tar.extractall(scratch)  # noqa: S202 - filtered, and of a known hash
        unpacked = Path(scratch) / home.name
        try:
            unpacked.rename(home)
        except OSError:
            if not (home / "bin" / "mvn").exists():  # else another process was faster
                raise
    return home / "bin" / "mvn"
