"""An agent's turn with a memory, without any framework: recall what matters, answer, remember both sides.

pip install engramlog
python examples/agent_turn.py localhost:9092 s1 < lines_of_what_the_user_says.txt
"""

import sys

from engramlog.engine.client import KafkaConfig, MemoryRecord, RecallFilter, Scope, SyncMemoryClient


def answer_of(said: str, memories: list[str]) -> str:
    """In the place of your model: give it the memories as context."""
    return f"({len(memories)} memories) I have heard: {said}"


bootstrap, session, *prefix = sys.argv[1:]
scope = Scope(tenant="acme", agent="helper", session=session, user="ada")
only_theirs = RecallFilter(roles=("user",))
with SyncMemoryClient(KafkaConfig(bootstrap, *prefix), timeout_s=30) as memory:
    for line in sys.stdin:
        said = line.strip()
        found = memory.recall(scope, said, limit=3, diversity=0.3, filter=only_theirs)
        for hit in found.hits:
            conflict = " ⚠ contradicts another" if hit.conflicts else ""
            print(f"  {hit.score:.2f} {hit.stored.record.content}{conflict}")
        answer = answer_of(said, [hit.stored.record.content for hit in found.hits])
        print(answer)
        # Afterwards: what is being asked is no memory yet.
        memory.publish(scope, [MemoryRecord(role="user", content=said), MemoryRecord(role="assistant", content=answer)])
