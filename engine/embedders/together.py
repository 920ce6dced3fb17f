"""Several coroutines at once, where the first failure ends the others and is told as itself."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeVar

Item = TypeVar("Item")


async def each(items: Iterable[Item], work: Callable[[Item], Coroutine[Any, Any, None]], *, at_once: int) -> None:
    """Do some work for each item, in their order, at most ``at_once`` of them at a time.

    Raises:
        Exception: The first failure; what was under way is cancelled.
    """
    waiting = iter(items)

    async def worker() -> None:
        for item in waiting:
            await work(item)

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(at_once):
                group.create_task(worker())
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from None
