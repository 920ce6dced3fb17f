"""The benchmarks: not run by the tests, but they must still fit what they measure."""

import importlib
from pathlib import Path

import pytest

import bench

MODULES = sorted(file.stem for file in Path(bench.__file__).parent.glob("[a-z]*.py"))


@pytest.mark.parametrize("name", MODULES)
def test_a_benchmark_can_be_imported(name: str) -> None:
    importlib.import_module(f"bench.{name}")
