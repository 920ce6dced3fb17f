// Subscribe to summaries from Node.js: memory.summaries with kafkajs, durable by its consumer group.
//
//   npm install kafkajs
//   node examples/summaries.mjs localhost:9092 memory.summaries acme helper memory.subscriber.node [how many]

import { Kafka, logLevel } from "kafkajs";

const [bootstrap, topic, tenant, agent, groupId, limit] = process.argv.slice(2);
const consumer = new Kafka({ brokers: [bootstrap], logLevel: logLevel.ERROR }).consumer({ groupId });
let left = Number(limit ?? Infinity);
let finish;
const finished = new Promise((resolve) => (finish = resolve));
await consumer.connect();
await consumer.subscribe({ topic, fromBeginning: true });
await consumer.run({
  autoCommit: false, // committed when the work is done: every summary comes at least once, its id tells repeats
  eachMessage: async ({ partition, message }) => {
    if (left <= 0) return;
    const event = message.value && JSON.parse(message.value.toString()); // no value: the summary was erased
    if (event?.type === "engramlog.summary.created.v1" && event.tenantid === tenant && event.agentid === agent) {
      const { summary_id, text, level = 1, replaces = [] } = event.data; // fields at their defaults are left out
      console.log(`${summary_id} level ${level}, replaces ${replaces.length}: ${text}`);
      left -= 1;
    }
    await consumer.commitOffsets([{ topic, partition, offset: String(BigInt(message.offset) + 1n) }]);
    if (left <= 0) finish();
  },
});
await finished;
await consumer.disconnect();
