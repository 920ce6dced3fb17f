"""How many points of a tenant hold a term: remembered by the embedded engine's child, always exact.

Every question asks for the frequencies of its terms, and counting a common one costs milliseconds. The child is the
only writer, so it can keep what it counted in step with what it writes.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

MOST: Final = 500_000
"""So many counts are remembered; then all are forgotten."""


class Frequencies:
    """Counts by tenant and term; the term None stands for all points of the tenant."""

    def __init__(self) -> None:
        self._counts: dict[str, dict[int | None, int]] = {}
        self._size = 0

    def known(self, tenant: str, term: int | None) -> int | None:
        """A count; None: it has to be counted."""
        return self._counts.get(tenant, {}).get(term)

    def learn(self, tenant: str, term: int | None, count: int) -> None:
        """Remember what was counted."""
        if self._size >= MOST:
            self.forget_all()
        self._counts.setdefault(tenant, {})[term] = count
        self._size += 1

    def changed(self, payload: Mapping[str, Any], by: int) -> None:
        """A point with this payload was written (``by`` 1) or replaced (-1)."""
        tenant = payload.get("tenant")
        counts = self._counts.get(tenant) if isinstance(tenant, str) else None
        if counts is None:
            return
        terms: Iterable[int] = payload.get("terms") or ()
        for term in (None, *set(terms)):
            if term in counts:
                counts[term] += by

    def forget(self, tenant: str | None) -> None:
        """A tenant's points changed in a way that is not followed; None: anybody's."""
        if tenant is None:
            self.forget_all()
        else:
            self._size -= len(self._counts.pop(tenant, {}))

    def forget_all(self) -> None:
        """Count anew from now on."""
        self._counts.clear()
        self._size = 0


def asked_count(where: Mapping[str, Any] | None) -> tuple[str, int | None] | None:
    """The tenant and term whose points a filter finds, if it is exactly of that form."""
    if where is None or where.keys() != {"must"} or not isinstance(where["must"], list):
        return None
    values = {one["key"]: one["match"]["value"] for one in where["must"] if _is_match(one)}
    if len(values) != len(where["must"]) or not isinstance(values.get("tenant"), str):
        return None
    if values.keys() == {"tenant"}:
        return values["tenant"], None
    if values.keys() == {"tenant", "terms"}:
        return values["tenant"], values["terms"]
    return None


def tenant_of(where: Mapping[str, Any] | None) -> str | None:
    """The one tenant whose points a filter can find; None: it names none at its top."""
    conditions = where.get("must") if where else None
    for one in conditions if isinstance(conditions, list) else []:
        if _is_match(one) and one["key"] == "tenant" and isinstance(one["match"]["value"], str):
            return str(one["match"]["value"])
    return None


def _is_match(condition: Mapping[str, Any]) -> bool:
    return condition.keys() == {"key", "match"} and condition["match"].keys() == {"value"}
