"""Writes ``partition_vectors.json``: what producers in other languages test their partition rule against.

Run ``python -m tests.unit.partition_vectors`` when the names below change. The rule itself never does.
"""

import json
from pathlib import Path
from typing import Any

from engramlog.schemas.keys import agent_prefix, event_key, murmur2, partition_for, record_key

VECTORS = "tests.unit.partition_vectors"
NAMES = (
    ("acme", "helper"),
    ("acme-corp", "helper"),
    ("t", "a"),
    ("a", "b/c"),
    ("a/b", "c"),
    ("50%", "~home"),
    ("%2F", "%7E"),
    ('-:/\\|"()', "tenant agent"),
    ("租户", "客服助手"),
    ("テナント", "エージェント"),
    ("👋", "🤖👩‍💻"),
    ("é", "e\u0301"),
    ("x" * 128, "y" * 128),
    ("acme", None),
)
COUNTS = (1, 2, 3, 6, 12, 48, 100, 1000)


def vectors() -> dict[str, Any]:
    """The rule in words, and for each agent: the escaped prefix, two keys, the hash and the partitions."""
    return {
        "rule": "(murmur2(utf8(prefix)) & 0x7fffffff) % partitions; prefix = escape(tenant) + '/' + escape(agent); "
        "escape: '%' -> '%25', '/' -> '%2F', '~' -> '%7E'; no agent: the empty string; murmur2 as in Kafka's Java "
        "client (32 bit, seed 0x9747b28c), shown unsigned",
        "vectors": [
            {
                "tenant": tenant,
                "agent": agent,
                "prefix": agent_prefix(tenant, agent),
                "record_key": record_key(tenant, agent, "r/1~%").decode() if agent else None,
                "event_key": event_key(tenant, agent, "r/1~%").decode(),
                "murmur2": murmur2(agent_prefix(tenant, agent).encode()),
                "partitions": {str(n): partition_for(tenant, agent, n) for n in COUNTS},
            }
            for tenant, agent in NAMES
        ],
    }


if __name__ == "__main__":
    text = json.dumps(vectors(), indent=2, ensure_ascii=False) + "\n"
    Path(__file__).with_suffix(".json").write_text(text, encoding="utf-8")
