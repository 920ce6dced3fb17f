"""Python's garbage collector in a process that does nothing but consume."""

import gc

_NEW, _YOUNG, _OLD = 20_000, 20, 50


def tune_collector() -> None:
    """Collect less often, and never look again at what has been loaded by now.

    A run of events is thousands of objects that live for some milliseconds. By default the collector runs in the
    middle of it, over and over, and goes through all modules each time it looks at old objects: nearly half of the
    time of ``store``. For whoever owns the process: it changes the collector for everything in it.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_NEW, _YOUNG, _OLD)
