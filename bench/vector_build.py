"""Building the vectors from events that are at hand, in events a second, against the limits in the same run.

``python -m bench.vector_build [--records 20000] [--json FILE]``. No Kafka: the encoded events lie in memory (random
unit vectors; texts whose words are as common as words are). All take turns, round by round, and are flushed:

- decoding alone;
- Qdrant Edge in this process: plain upserts of points that were made before, with our indexes;
- the limit: decoding, making points and plain upserts, one after the other in this process;
- a bound that makes points for nothing: decoding and upserts alone, computed from the two above;
- ours by ``Vectors.build``, as a replay does, and by ``Vectors.apply``, as a live ``index`` does.

Other work on the machine slows down two processes more than one: the load is told.
"""

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import qdrant_edge

from bench.common import median, run
from bench.meaning import bare_shard, derived, random_vectors
from engramlog.engine.ports import CollectionSpec
from engramlog.engine.vectors import translate
from engramlog.engine.vectors.edge import EdgeEngine, new_points
from engramlog.engine.vectors.points import upsert_of
from engramlog.engine.vectors.vectors import Vectors, Written
from engramlog.schemas.codec import derived_codec

MODEL = "random"
RAW_BATCH = 500
RUN = 2_000
"""Events that a replay takes at once."""


def encoded(count: int, dimension: int) -> list[bytes]:
    """The events."""
    events = derived(count, random_vectors(count, dimension, seed=2), seed=2)
    return [derived_codec().encode(event) for event in events]


def decode(values: Sequence[bytes]) -> float:
    """Seconds for decoding."""
    codec = derived_codec()
    began = time.perf_counter()
    for begin in range(0, len(values), RUN):
        _ = [codec.decode(value) for value in values[begin : begin + RUN]]
    return time.perf_counter() - began


def raw(values: Sequence[bytes], dimension: int, directory: Path, *, whole: bool) -> float:
    """Seconds for plain upserts into Qdrant Edge, flushed; ``whole``: with decoding and making the points."""
    shard, spent = bare_shard(directory, dimension), 0.0
    for begin in range(0, len(values), RAW_BATCH):
        began = time.perf_counter()
        points = _points(values[begin : begin + RAW_BATCH], dimension, begin)
        if not whole:
            began = time.perf_counter()
        shard.update(qdrant_edge.UpdateOperation.upsert_points(points))
        spent += time.perf_counter() - began
    began = time.perf_counter()
    shard.flush()
    spent += time.perf_counter() - began
    shard.close()
    shutil.rmtree(directory)
    return spent


def _points(values: Sequence[bytes], dimension: int, begin: int) -> list[Any]:
    codec, spec = derived_codec(), CollectionSpec("bare", MODEL, dimension)
    events = [codec.decode(value) for value in values]
    upserts = [upsert_of(event, sequence=begin + n, partition=0) for n, event in enumerate(events)]
    return [translate.point_of(p) for p in new_points(upserts, spec)]


async def ours(values: Sequence[bytes], dimension: int, directory: Path, *, how: str) -> tuple[float, str]:
    """Seconds for decoding and ``build`` or ``apply``, flushed; and the digest of what is there then."""
    codec, engine = derived_codec(), EdgeEngine(directory)
    await engine.start(CollectionSpec("bench", MODEL, dimension))
    try:
        vectors = Vectors(engine)
        write = vectors.build if how == "build" else vectors.apply
        began = time.perf_counter()
        for begin in range(0, len(values), RUN):
            part = values[begin : begin + RUN]
            await write([Written(codec.decode(value), begin + n, 0) for n, value in enumerate(part)])
        await vectors.flush()
        return time.perf_counter() - began, await vectors.digest()
    finally:
        await engine.stop()
        shutil.rmtree(directory)


async def one_round(values: Sequence[bytes], dimension: int, place: Path, *, backwards: bool) -> dict[str, float]:
    """Seconds of each way, one after the other."""
    spent, digests = dict[str, float](), set[str]()
    ways = ["decode", "bare", "limit", "build", "apply"]
    for way in reversed(ways) if backwards else ways:
        if way == "decode":
            spent[way] = decode(values)
        elif way in {"bare", "limit"}:
            spent[way] = raw(values, dimension, place / "bare", whole=way == "limit")
        else:
            spent[way], digest = await ours(values, dimension, place / "ours", how=way)
            digests.add(digest)
    if len(digests) != 1:
        raise RuntimeError("built and applied vectors differ")
    spent["bound"] = spent["decode"] + spent["bare"]
    return spent


async def measure(args: argparse.Namespace) -> dict[str, Any]:
    """Several rounds; medians of rates, and of each round's shares."""
    values = encoded(args.records, args.dimension)
    rounds: list[dict[str, float]] = []
    before = os.getloadavg()
    with tempfile.TemporaryDirectory(prefix="engramlog-bench-") as name:
        for i in range(args.rounds):
            print(f"round {i + 1} of {args.rounds} …", file=sys.stderr)
            rounds.append(await one_round(values, args.dimension, Path(name), backwards=i % 2 == 1))

    def rate(way: str) -> float:
        return median([len(values) / one[way] for one in rounds])

    def share(way: str, limit: str) -> float:
        return round(median([one[limit] / one[way] for one in rounds]), 3)

    told = {
        "decode": "decoding alone",
        "bare": "bare Edge, points made before",
        "limit": "the limit: decoding, making points, Edge, in one process",
        "bound": "decoding and Edge alone (computed)",
        "build": "build, as a replay does",
        "apply": "apply, as live indexing does",
    }
    return {
        "rows": [
            {
                "what": what,
                "events/s": rate(way),
                "of the limit": share(way, "limit"),
                "of the bound": share(way, "bound"),
            }
            for way, what in told.items()
        ],
        "share_of_limit": share("build", "limit"),
        "share_of_bound": share("build", "bound"),
        "apply_share_of_limit": share("apply", "limit"),
        "records": args.records,
        "dimension": args.dimension,
        "load_before_and_after": [[round(x, 1) for x in before], [round(x, 1) for x in os.getloadavg()]],
        "aim": "0.7 of the limit",
    }


def arguments(parser: argparse.ArgumentParser) -> None:
    """How much to measure."""
    parser.add_argument("--records", type=int, default=20_000, help="derived events (20000)")
    parser.add_argument("--dimension", type=int, default=512, help="components of the vectors (512)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of each (3)")


if __name__ == "__main__":
    run("building the vectors, against the limits", measure, arguments=arguments)
