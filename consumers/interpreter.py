"""Python's garbage collector and threads in a process that does nothing but consume."""

import gc
import sys

_NEW, _YOUNG, _OLD = 20_000, 20, 50
_SWITCH_S = 0.0005


def tune_interpreter() -> None:
    """Collect less often, never look again at what has been loaded by now, and let threads take turns more often.

    A run of events is thousands of objects that live for some milliseconds. By default the collector runs in the
    middle of it, over and over, and goes through all modules each time it looks at old objects: nearly half of the
    time of ``store``. And by default whoever waits for a thread that computes (rules that read a talk) waits for 5 ms,
    at each of the ten or so steps of an answer. For whoever owns the process: it changes both for everything in it.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_NEW, _YOUNG, _OLD)
    sys.setswitchinterval(_SWITCH_S)
