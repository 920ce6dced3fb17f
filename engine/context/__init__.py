"""A context under a token budget, packed from what was read. Pure: no clock, no store, no model."""

from engramlog.engine.context.material import Material
from engramlog.engine.context.packing import pack

__all__ = ["Material", "pack"]
