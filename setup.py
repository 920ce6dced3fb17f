"""Map the top-level folders onto one installed package, ``engramlog``."""

from setuptools import find_packages, setup

PARTS = ("engine", "consumers", "schemas", "deploy")

setup(
    packages=[f"engramlog.{p}" for p in find_packages(include=[q for n in PARTS for q in (n, f"{n}.*")])],
    package_dir={f"engramlog.{n}": n for n in PARTS},
)
