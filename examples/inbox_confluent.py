"""Remember from any program: plain JSON into ``memory.inbox`` with confluent-kafka (librdkafka).

pip install confluent-kafka
python examples/inbox_confluent.py localhost:9092 memory.inbox
"""

import json
import sys

from confluent_kafka import Producer

bootstrap, topic = sys.argv[1:3]
producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
talk = [("user", "我喜欢喝茶，不喜欢咖啡。"), ("assistant", "Noted: tea, not coffee. 🍵")]
for role, content in talk:
    record = {"tenant": "acme", "agent": "helper", "session": "s1", "user": "ada", "role": role, "content": content}
    # Messages with one key keep their order: use the agent as the key.
    producer.produce(topic, key="acme/helper", value=json.dumps(record, ensure_ascii=False).encode())
left = producer.flush(30)
print(f"{len(talk) - left} of {len(talk)} records are in {topic}")
sys.exit(1 if left else 0)
