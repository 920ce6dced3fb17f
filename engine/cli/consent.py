"""Asking before something is done that cannot be undone."""

import sys

import click

yes_option = click.option("--yes", is_flag=True, help="Do not ask.")


def agree(question: str, *, yes: bool) -> None:
    """Ask on standard error, unless ``yes``.

    Raises:
        click.Abort: No.
        click.UsageError: There is nobody to ask.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(f"{question} Nobody can be asked here: give --yes.")
    click.confirm(question, abort=True, err=True)
