"""The README is executed: its Python on a real broker, its commands by the command line itself."""

import asyncio
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from engramlog.engine.cli.root import cli
from tests.brokers import Rig

README = (Path(__file__).parents[2] / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.DOTALL | re.MULTILINE)


SAYS = (
    ["1.00 system: You book tables.", "1.00 user: A table for two, please. 谢谢！"],
    ["我对花生过敏。 | semantic + importance + recency", "My bicycle is red."],
    [
        "1 True",
        "3 True",
        "5 True",
        "new for 4 records",
        "['save_memory', 'recall_memories', 'forget_memory']",
    ],
    [
        "I hate cilantro. 我讨厌香菜。 | I hate cilantro. 我讨厌香菜。",
        "I love cilantro. 我喜欢香菜。 | I love cilantro. 我喜欢香菜。",
    ],
)
"""What each of its programs prints."""


@pytest.mark.kafka
async def test_the_python_of_the_readme_runs(rig: Rig, tmp_path: Path) -> None:
    script = tmp_path / "readme.py"
    here = f'MemoryClient(KafkaConfig("{rig.config.bootstrap_servers}", prefix="{rig.settings.prefix}"), timeout_s=60)'
    async with rig.consumers("store", "derive", "index", "summarise", "answer"):
        for code, says in zip(blocks("python"), SAYS, strict=True):
            assert 'MemoryClient("localhost:9092")' in code
            script.write_text(
                code.replace('MemoryClient("localhost:9092")', here).replace(
                    "engine.client import ", "engine.client import KafkaConfig, "
                )
            )
            process = await asyncio.create_subprocess_exec(
                sys.executable, str(script), stdout=subprocess.PIPE, stderr=subprocess.STDOUT
            )
            said, _ = await asyncio.wait_for(process.communicate(), 90)
            assert process.returncode == 0, said.decode()
            assert said.decode().splitlines() == says


def commands() -> list[str]:
    in_blocks = [line for block in blocks("sh") for line in block.splitlines() if line.startswith("engramlog")]
    in_tables = re.findall(r"^\| `(engramlog [^`]+)` \|", README, re.MULTILINE)
    return [*in_blocks, *in_tables]


@pytest.mark.parametrize("line", commands())
def test_every_command_of_the_readme_exists(line: str) -> None:
    words = line.split("#", maxsplit=1)[0].replace("\\", "").split()[1:]
    plain = []
    for word in words:
        if not re.fullmatch(r"[a-z|-]+", word) or word.startswith("-"):
            break
        plain.append(word)
    for choice in plain[-1].split("|") if plain else [""]:
        done = CliRunner().invoke(cli, [*plain[:-1], *([choice] if choice else []), "--help"])
        assert done.exit_code == 0, (line, done.output)


def test_the_first_two_commands_are_targets_of_the_makefile() -> None:
    first = blocks("sh")[0]
    targets = re.findall(r"^make ([a-z]+)", first, re.MULTILINE)
    assert targets == ["demo", "test"]
    makefile = (Path(__file__).parents[2] / "Makefile").read_text()
    assert all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in targets)
