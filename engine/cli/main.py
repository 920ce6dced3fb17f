"""The console script ``engramlog``. Imports nothing of weight: ``--help`` is fast, and a lack is told plainly."""

import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        arguments: What stands behind ``engramlog``; by default of this process.

    Returns:
        The exit code: see ``engramlog --help``.
    """
    try:
        from engramlog.engine.cli.root import cli
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("engramlog"):
            raise
        print(  # noqa: T201 - there may be no click
            f"engramlog: the command line needs {error.name!r}: pip install 'engramlog[engine]'", file=sys.stderr
        )
        return 2
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a terminal that cannot show a character gets its code instead of a crash
            stream.reconfigure(errors="backslashreplace")
    try:
        cli.main(None if arguments is None else list(arguments), prog_name="engramlog")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
