"""Embedders: texts to vectors, offline or through an endpoint, and the chunks of long texts."""

from engramlog.engine.embedders.choosing import chosen, embedder_of

__all__ = ["chosen", "embedder_of"]
