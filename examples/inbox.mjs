// Remember from Node.js: plain JSON into memory.inbox with kafkajs.
//
//   npm install kafkajs
//   node examples/inbox.mjs localhost:9092 memory.inbox

import { Kafka, logLevel } from "kafkajs";

const [bootstrap, topic] = process.argv.slice(2);
const producer = new Kafka({ brokers: [bootstrap], logLevel: logLevel.ERROR }).producer({ idempotent: true });
const talk = [
  ["user", "我喜欢喝茶，不喜欢咖啡。"],
  ["assistant", "Noted: tea, not coffee. 🍵"],
];
await producer.connect();
await producer.send({
  topic,
  // Messages with one key keep their order: use the agent as the key.
  messages: talk.map(([role, content]) => ({
    key: "acme/helper",
    value: JSON.stringify({ tenant: "acme", agent: "helper", session: "s1", user: "ada", role, content }),
  })),
});
await producer.disconnect();
console.log(`${talk.length} records are in ${topic}`);
