"""What identifies a collection, and what is said when it is another's."""

from collections.abc import Mapping
from typing import Any


def identity_of(*, model: str, dimension: int, extra: Mapping[str, str]) -> dict[str, Any]:
    """What the store notes down beside the vectors."""
    return {"model": model, "dimension": dimension, "extra": dict(extra)}


def refusal(place: str, there: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
    """Why a collection is not opened, and what to do."""
    return (
        f"the vectors in {place} are of {_told(there)}, but the configuration says {_told(wanted)}: configure that "
        "model again, or fill a new generation"
    )


def _told(identity: Mapping[str, Any]) -> str:
    extra = "".join(f", {key} {value}" for key, value in sorted(identity.get("extra", {}).items()))
    return f"{identity.get('model')} with {identity.get('dimension')} dimensions{extra}"
