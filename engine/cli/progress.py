"""A bar of progress on standard error, where that is a terminal."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress(doing: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """A bar with events a second and the time that is left.

    Args:
        doing: What is done.
        total: How many events there are; None: unknown.

    Yields:
        What is told how many more are done.
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn
    from rich.progress import TimeRemainingColumn as Remaining
    from rich.text import Text

    class Speed(ProgressColumn):
        """Events a second."""

        def render(self, task: Task) -> Text:
            """As far as it is known."""
            return Text("" if task.speed is None else f"{task.speed:,.0f}/s")

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), Speed(), Remaining())
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as bar:
        task = bar.add_task(doing, total=total)
        yield lambda steps: bar.advance(task, steps)
