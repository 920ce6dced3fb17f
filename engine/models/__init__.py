"""Models behind OpenAI-compatible endpoints: one pool for vectors and structured answers."""

from engramlog.engine.models.endpoints import Endpoints

__all__ = ["Endpoints"]
