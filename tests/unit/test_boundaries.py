"""What may be imported where: the allow lists that import-linter's contracts cannot say."""

import sys

import grimp
import pytest

ROOTS = ("engramlog.engine", "engramlog.consumers", "engramlog.schemas", "engramlog.deploy")

# The client reads pydantic's ValidationError, to name what is wrong with a record before it is sent; and it traces
# where OpenTelemetry is installed, which the base install does not bring.
ALLOWED = {
    "engramlog.schemas": ("engramlog.schemas", "pydantic", "pydantic_core", "uuid_utils"),
    "engramlog.engine.client": (
        "engramlog.engine.client",
        "engramlog.schemas",
        "aiokafka",
        "opentelemetry",
        "pydantic",
    ),
}


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    return grimp.build_graph(*ROOTS, include_external_packages=True, cache_dir=None)


@pytest.mark.parametrize("part", ALLOWED)
def test_a_part_of_the_base_install_imports_only_what_it_may(graph: grimp.ImportGraph, part: str) -> None:
    modules = {part, *graph.find_descendants(part)}
    imported = {target for module in modules for target in graph.find_modules_directly_imported_by(module)}
    astray = {
        name
        for name in imported - sys.stdlib_module_names
        if not any(f"{name}.".startswith(f"{ok}.") for ok in ALLOWED[part])
    }
    assert not astray
