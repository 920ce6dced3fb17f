"""The history store: what was remembered, in order, as SQL rows (SQLite or PostgreSQL)."""

from engramlog.engine.history.checkpoints import Checkpoint
from engramlog.engine.history.history import History
from engramlog.engine.history.reading import Read

__all__ = ["Checkpoint", "History", "Read"]
