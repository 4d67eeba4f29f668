// Runs clients/js/postdate.mjs. `conformance FILE` prints its result for each case as one line of JSON.
// `live BROKER REQUESTS PARTITIONS TARGET KAFKAJS` schedules three messages, cancels two, returns the third, repeats a
// fourth, and prints the messages that it reads.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import * as postdate from "../../../clients/js/postdate.mjs";

const bytes = (text) => (text === null ? null : Buffer.from(text, "base64"));
const base64 = (value) => (value === null ? null : value.toString("base64"));
const milliseconds = (us) => (us === undefined ? undefined : us / 1000);
const origin = (each) => each && `${each.topic}/${each.partition}/${each.offset}`;

// KafkaJS expects headers as an object, with an array for a repeated name.
function headers(pairs = []) {
  const found = {};
  for (const [name, value] of pairs) {
    found[name] = name in found ? [].concat(found[name], [bytes(value)]) : bytes(value);
  }
  return found;
}

const pairs = (found) =>
  Object.entries(found).flatMap(([name, value]) => [value].flat().map((each) => [name, base64(each)]));

function request(requests, call, given) {
  const { id, origin, level } = given;
  const when = { at: milliseconds(given.at_us), delayMs: milliseconds(given.delay_us), level };
  const graceMs = milliseconds(given.grace_us);
  switch (call) {
    case "cancel":
    case "deliver":
    case "pause":
    case "resume":
    case "trigger":
      return requests[call]({ id, origin });
    case "backfill":
      return requests.backfill({ id, origin, start: milliseconds(given.start_us), end: milliseconds(given.end_us) });
    case "reschedule":
      return requests.reschedule({ id, origin, graceMs, ...when });
    case "retry": {
      const message = { key: bytes(given.key), value: bytes(given.value), headers: headers(given.headers) };
      return requests.retry(given.topic, message, given.policy, given.error);
    }
    case "cancel_selected":
    case "deliver_selected":
    case "reschedule_selected": {
      const key = given.key === undefined ? undefined : bytes(given.key);
      const selection = { target: given.target, idPrefix: given.id_prefix, key };
      const times = { from: milliseconds(given.from_us), until: milliseconds(given.until_us) };
      const moved = call === "reschedule_selected" ? { byMs: milliseconds(given.by_us) } : {};
      return requests[call.replace("_selected", "Selected")]({ ...selection, ...times, ...moved });
    }
  }
  const lengths = { graceMs, windowMs: milliseconds(given.window_us) };
  const message = { id, key: bytes(given.key), headers: headers(given.headers) };
  const options = { ...message, ...lengths, targetPartition: given.target_partition };
  if (call === "repeat") {
    const { cron, zone, gap, fold, count, missed } = given;
    const interval = { everyMs: milliseconds(given.every_us), phaseMs: milliseconds(given.phase_us) };
    const times = { start: milliseconds(given.start_us), end: milliseconds(given.end_us), count };
    const late = { missed, catchUpMs: milliseconds(given.catch_up_us) };
    const recurring = { ...options, cron, zone, gap, fold, ...interval, ...times, ...late };
    return requests.repeat(given.target, bytes(given.value), recurring);
  }
  const policies = { ifPending: given.if_pending, ifEnded: given.if_ended, latestMs: milliseconds(given.latest_us) };
  return requests.schedule(given.target, bytes(given.value), { ...options, ...when, ...policies, spread: given.spread });
}

const record = ({ partition = null, key, value, headers: made }) => ({
  partition,
  key: base64(key),
  value: base64(value),
  headers: pairs(made),
});

function result(name, { call, input }) {
  try {
    if (call === "partition") return { partition: postdate.partitionFor(bytes(input.key), input.partitions) };
    if (call === "delivered") {
      const read = postdate.readDelivered(headers(input.headers));
      const first = { first_origin: origin(read.firstOrigin), first_due_ms: read.firstDueMs, error: read.error };
      const { id, attempt, dueMs: due_ms, occurrence, nextMs: next_ms, extra } = read;
      const message = { headers: pairs(read.headers), occurrence, next_ms, extra };
      return { delivered: { origin: origin(read.origin), due_ms, id, attempt, ...first, ...message } };
    }
    if (call === "verdict") {
      const { id, verdict, atMs, count, ...read } = postdate.readVerdict(bytes(input.value));
      const named = { of: origin(read.of), by: origin(read.by) };
      return { answer: { origin: origin(read.origin), id, verdict, ...named, at_ms: atMs, count } };
    }
    const { topic, messages } = request(new postdate.RequestTopic(name, input.partitions), call, input);
    const isBulk = call.endsWith("_selected");
    if (topic !== name || (messages.length !== 1 && !isBulk)) throw new Error("one message to the request topic is wanted");
    return isBulk ? { records: messages.map(record) } : { record: record(messages[0]) };
  } catch (error) {
    if (error instanceof postdate.RequestInvalid) return { error: error.reason };
    if (error instanceof postdate.FormatError) return { error: "format" };
    throw error;
  }
}

async function live(broker, name, partitions, target, library) {
  const { Kafka, Partitioners, logLevel } = createRequire(import.meta.url)(library);
  const kafka = new Kafka({ brokers: [broker], logLevel: logLevel.ERROR });
  const requests = new postdate.RequestTopic(name, Number(partitions));
  const producer = kafka.producer({ createPartitioner: Partitioners.DefaultPartitioner });
  await producer.connect();
  const later = { delayMs: 3_600_000 };
  await producer.send(requests.schedule(target, "by id", { id: "javascript-1", key: "k", ...later }));
  const [sent] = await producer.send(requests.schedule(target, "by origin", later));
  await producer.send(requests.schedule(target, "kept", { id: "javascript-2", key: "javascript", delayMs: 500 }));
  await producer.send(requests.cancel({ id: "javascript-1" }));
  await producer.send(requests.cancel({ origin: `${name}/${sent.partition}/${sent.baseOffset}` }));
  const every = { id: "javascript-3", key: "javascript", everyMs: 1_000, count: 2 };
  await producer.send(requests.repeat(target, "tick", every));

  const consumer = kafka.consumer({ groupId: target });
  await consumer.connect();
  await consumer.subscribe({ topics: [target, `${name}.verdicts`], fromBeginning: true });
  let read = 0;
  await new Promise((resolve, reject) =>
    consumer
      .run({
        eachMessage: async ({ topic, message }) => {
          try {
            if (topic === target) {
              const got = postdate.readDelivered(message.headers);
              const { id, attempt, error, occurrence, nextMs } = got;
              const counted = `${attempt ?? 0} ${JSON.stringify(error ?? "")} ${occurrence ?? 0} ${nextMs !== null}`;
              console.log(`${message.value} ${id} ${message.key} ${counted}`);
              if (attempt === null && occurrence === null) {
                await producer.send(requests.retry(topic, message, "base=100ms, attempts=1", "busy"));
              }
            } else {
              const answer = postdate.readVerdict(message.value);
              console.log(`${answer.verdict} ${answer.id}`);
            }
          } catch (error) {
            reject(error);
          }
          if (++read === 6) resolve();
        },
      })
      .catch(reject),
  );
  await consumer.disconnect();
  await producer.disconnect();
}

const [, , mode, ...rest] = process.argv;
if (mode === "live") await live(...rest);
else {
  const { requests, cases } = JSON.parse(readFileSync(rest[0], "utf8"));
  for (const each of cases) {
    if (each.only === undefined || each.only.includes("javascript")) console.log(JSON.stringify(result(requests, each)));
  }
}
