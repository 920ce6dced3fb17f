"""The benchmarks: not run by the tests, but they must still fit what they measure."""

import importlib
from pathlib import Path

import pytest

import bench
from bench import raw_history

MODULES = sorted(file.stem for file in Path(bench.__file__).parent.glob("[a-z]*.py"))


@pytest.mark.parametrize("name", MODULES)
def test_a_benchmark_can_be_imported(name: str) -> None:
    importlib.import_module(f"bench.{name}")


def test_the_raw_rows_of_the_limits_fit_the_tables(tmp_path: Path) -> None:
    database = raw_history.raw_database(tmp_path / "raw.db")
    for table, insert in (("records", raw_history.RECORDS), ("derived", raw_history.DERIVED)):
        database.execute(insert, [str(n) for n in range(insert.count("?"))])
        assert database.execute(f"SELECT count(*) FROM history_v1_{table}").fetchone() == (1,)
    database.close()
