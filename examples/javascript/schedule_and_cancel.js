// Schedules two reminders with KafkaJS, cancels one of them by its id, and waits for the other.
//
// The id is the key of the request, so that schedule and cancel meet in one partition; `postdate-key` is the key that
// the reminder arrives with. KafkaJS 2 places keys as Java's clients do by its default partitioner; KafkaJS 1 needs
// `createPartitioner: Partitioners.JavaCompatiblePartitioner`.
//
//     npm install --prefix examples/javascript
//     node examples/javascript/schedule_and_cancel.js
//
// BOOTSTRAP and REQUESTS name the broker and the request topic (localhost:9092, postdate.requests).
const { Kafka, Partitioners, logLevel } = require("kafkajs");

const { BOOTSTRAP = "localhost:9092", REQUESTS = "postdate.requests" } = process.env;
const REMINDERS = "example.javascript.reminders";

const schedule = (id, customer, text, delay) => ({
  key: id,
  value: text,
  headers: { "postdate-topic": REMINDERS, "postdate-delay": delay, "postdate-id": id, "postdate-key": customer },
});

const cancel = (id) => ({
  key: id,
  value: null,
  headers: { "postdate-action": "cancel", "postdate-id": id },
});

async function main() {
  const kafka = new Kafka({ brokers: BOOTSTRAP.split(","), logLevel: logLevel.ERROR });

  const admin = kafka.admin();
  await admin.connect();
  await admin.createTopics({ topics: [{ topic: REMINDERS, numPartitions: 1 }] }); // false where it is there already
  await admin.disconnect();

  const producer = kafka.producer({ createPartitioner: Partitioners.DefaultPartitioner });
  await producer.connect();
  await producer.send({
    topic: REQUESTS,
    messages: [
      schedule("reminder-1", "customer-42", "your basket is waiting", "2s"),
      schedule("reminder-2", "customer-42", "your voucher ends today", "PT2S"),
    ],
  });
  await producer.send({ topic: REQUESTS, messages: [cancel("reminder-1")] });
  await producer.disconnect();

  // KafkaJS passes over what an aborted transaction left by default (`readUncommitted: false`).
  const consumer = kafka.consumer({ groupId: "example.javascript" });
  await consumer.connect();
  await consumer.subscribe({ topic: REMINDERS, fromBeginning: true });
  await new Promise((resolve) =>
    consumer.run({
      eachMessage: async ({ message }) => {
        console.log(`${message.headers["postdate-id"]} for ${message.key}: ${message.value}`);
        resolve();
      },
    }),
  );
  await consumer.disconnect();
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
