"""Where the messages of a log lie in its copy."""

from array import array
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(slots=True)
class Places:
    """Where the messages of one old partition that go to one new partition lie: old and new offsets, ascending.

    16 bytes a message.
    """

    old: "array[int]" = field(default_factory=lambda: array("q"))
    new: "array[int]" = field(default_factory=lambda: array("q"))

    def add(self, old: int, new: int) -> None:
        """Note one. An older one that was copied again takes those after it with it: they will be, too."""
        while self.old and self.old[-1] >= old:
            self.old.pop()
            self.new.pop()
        self.old.append(old)
        self.new.append(new)

    @property
    def next(self) -> int:
        """Old offset from which on nothing was copied."""
        return self.old[-1] + 1 if self.old else 0

    def below(self, at: int) -> int:
        """The new offset below which exactly those lie that lay below ``at``."""
        before = bisect_left(self.old, at)
        return self.new[before - 1] + 1 if before else 0

    def find(self, offset: int) -> int | None:
        """The new offset of a message; None: it is not there any more."""
        before = bisect_left(self.old, offset)
        return self.new[before] if before < len(self.old) and self.old[before] == offset else None

    def at(self, offset: int) -> int:
        """The new offset of a message; of one that is not there any more, that of the last one before it (or 0)."""
        upto = bisect_right(self.old, offset)
        return self.new[upto - 1] if upto else 0

    def since(self, offset: int) -> int:
        """The new offset of a message; of one that is not there any more, where those after it begin."""
        before = bisect_left(self.old, offset)
        if before < len(self.old):
            return self.new[before]
        return self.new[-1] + 1 if self.new else 0

    def first_from(self, offset: int) -> int | None:
        """The new offset of the first message from ``offset`` on; None: there is none."""
        before = bisect_left(self.old, offset)
        return self.new[before] if before < len(self.old) else None


@dataclass(slots=True)
class Everywhere:
    """A message that lies in every partition.

    Attributes:
        old: By old partition, its offset.
        new: By new partition, its offset.
    """

    old: dict[int, int] = field(default_factory=dict)
    new: dict[int, int] = field(default_factory=dict)


@dataclass(slots=True)
class Moved:
    """Where all messages of a log lie in its copy.

    Attributes:
        partitions: Partitions of the copy.
        places: By old and new partition, the messages of agents.
        everywhere: By name, the messages that lie in every partition.
    """

    partitions: int
    places: dict[tuple[int, int], Places] = field(default_factory=lambda: defaultdict(Places))
    everywhere: dict[str, Everywhere] = field(default_factory=lambda: defaultdict(Everywhere))

    def of(self, old: int, new: int) -> Places:
        """Where the messages of one old partition lie in one new one."""
        return self.places[old, new]

    def erasure(self, old: int, offset: int, new: int) -> int:
        """The offset in a new partition of a message that lies in every partition; the next best where it is gone."""
        for shared in self.everywhere.values():
            if shared.old.get(old) == offset and new in shared.new:
                return shared.new[new]
        return self.places[old, new].below(offset)

    def passed(self, old: Mapping[int, int], new: int, *, end: int) -> int:
        """How far a new partition is passed when each old one is passed up to an offset: the first message not passed.

        Args:
            old: By old partition, the first offset that is not passed; one that is not named is not passed at all.
            new: The new partition.
            end: Its end: so far it is passed when nothing is left.
        """
        left = [end]
        for (partition, to), places in self.places.items():
            if to == new and (first := places.first_from(old.get(partition, 0))) is not None:
                left.append(first)
        left += [
            shared.new[new]
            for shared in self.everywhere.values()
            if new in shared.new and any(offset >= old.get(p, 0) for p, offset in shared.old.items())
        ]
        return min(left)
