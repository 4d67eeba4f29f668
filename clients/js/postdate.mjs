// Requests to Postdate for KafkaJS, and readers of delivered records and verdicts.
//
//     const requests = new RequestTopic("postdate.requests", partitions);
//     await producer.send(requests.schedule("reminders", "pay!", { id: "order-9", key: "customer-7", delayMs: 7_200_000 }));
//     await producer.send(requests.cancel({ id: "order-9" }));
//
// Each message names its partition, so the partitioner of the producer does not matter. Nothing here opens a connection.
// postdate.d.ts has the types and describes each function.

const HORIZON_MS = 400 * 86_400_000;
const ID_BYTES_MAX = 256;
const POLICY_BYTES_MAX = 256;
const VERDICT_BYTES_MAX = 8 * 1024;
const TOPIC = /^[a-zA-Z0-9._-]{1,249}$/;
const ORIGIN = /^([^/]+)\/(0|[1-9][0-9]{0,9})\/(0|[1-9][0-9]{0,18})$/;
// From these the attempts of a return count.
const COUNTED = new Set(
  ["origin", "due", "id", "attempt", "first-origin", "first-due"].map((name) => `postdate-${name}`),
);
const OWN = ["", ".dispatch-log", ".store", ".dead-letters", ".verdicts"];
const VERDICTS = new Set(
  "accepted rejected cancelled rescheduled replaced delivered dead not-found too-late".split(" "),
);

export class RequestInvalid extends Error {
  constructor(reason, detail) {
    super(`${reason}: ${detail}`);
    this.name = "RequestInvalid";
    this.reason = reason;
  }
}

export class FormatError extends Error {
  constructor(message) {
    super(message);
    this.name = "FormatError";
  }
}

export class RequestTopic {
  constructor(name, partitions) {
    if (!isTopic(name) || !Number.isInteger(partitions) || partitions < 1) {
      throw new TypeError("a request topic needs the name of a Kafka topic and its number of partitions, 1 or more");
    }
    this.name = name;
    this.partitions = partitions;
  }

  schedule(target, value, { key = null, headers = {}, at, delayMs, level, id, graceMs, targetPartition } = {}) {
    const all = messageHeaders(headers);
    this.#checkTarget(target);
    all["postdate-topic"] = text(target);
    addTime(all, { at, delayMs, level });
    addGrace(all, graceMs);
    if (targetPartition !== undefined) {
      all["postdate-partition"] = text(natural("bad-partition", "targetPartition", targetPartition));
    }
    const keyBytes = bytes("key", key);
    if (id === undefined) {
      return this.#record(keyBytes && partitionFor(keyBytes, this.partitions), keyBytes, bytes("value", value), all);
    }
    const named = idBytes(id);
    if (keyBytes === null) {
      throw new RequestInvalid("bad-headers", "a message with an id needs a key: KafkaJS cannot send a null header");
    }
    all["postdate-id"] = named;
    all["postdate-key"] = keyBytes;
    return this.#record(partitionFor(named, this.partitions), named, bytes("value", value), all);
  }

  cancel({ id, origin }) {
    return this.#control({ id, origin }, { "postdate-action": text("cancel") });
  }

  reschedule({ id, origin, at, delayMs, level, graceMs }) {
    const headers = { "postdate-action": text("reschedule") };
    addTime(headers, { at, delayMs, level });
    addGrace(headers, graceMs);
    return this.#control({ id, origin }, headers);
  }

  deliver({ id, origin }) {
    return this.reschedule({ id, origin, delayMs: 0 });
  }

  retry(topic, message, policy, error) {
    // eslint-disable-next-line no-control-regex -- ASCII
    if (typeof policy !== "string" || !policy.trim() || policy.length > POLICY_BYTES_MAX || !/^[\0-\x7f]*$/.test(policy)) {
      const what = `a text such as base=1s, attempts=5, or a name, of at most ${POLICY_BYTES_MAX} ASCII characters`;
      throw new RequestInvalid("bad-retry", `a policy is ${what}`);
    }
    const headers = {};
    for (const [name, value] of Object.entries(message.headers ?? {})) {
      if (!isOurs(name) || COUNTED.has(name)) headers[name] = headerValue(name, value);
      else if (!isAdded(name)) throw reserved(name);
    }
    this.#checkTarget(topic);
    headers["postdate-topic"] = text(topic);
    headers["postdate-retry"] = text(policy);
    if (error !== undefined) headers["postdate-error"] = text(error);
    const key = bytes("key", message.key ?? null);
    return this.#record(key && partitionFor(key, this.partitions), key, bytes("value", message.value ?? null), headers);
  }

  partitionOf(id) {
    return partitionFor(idBytes(id), this.partitions);
  }

  #control({ id, origin }, headers) {
    if (id !== undefined && origin !== undefined) throw new RequestInvalid("bad-action", "give id or origin, not both");
    if (id !== undefined) {
      const named = idBytes(id);
      return this.#record(partitionFor(named, this.partitions), named, null, { ...headers, "postdate-id": named });
    }
    if (origin === undefined) throw new RequestInvalid("missing-id", "give id or origin");
    const partition = this.#partitionOfOrigin(origin);
    return this.#record(partition, null, null, { ...headers, "postdate-origin": text(origin) });
  }

  #partitionOfOrigin(origin) {
    let parsed;
    try {
      parsed = parseOrigin(origin);
    } catch (error) {
      throw new RequestInvalid("bad-id", error.message);
    }
    if (parsed.topic !== this.name || parsed.partition >= this.partitions) {
      throw new RequestInvalid(
        "bad-id",
        `the origin names partition ${parsed.partition} of ${parsed.topic}, and ${this.name} was said to have ` +
          `${this.partitions}: ask the cluster for their number`,
      );
    }
    return parsed.partition;
  }

  #checkTarget(target) {
    if (!isTopic(target)) {
      throw new RequestInvalid("bad-target", "the target is not the name of a Kafka topic: use letters, digits, . _ -");
    }
    if (target.startsWith("__") || OWN.some((suffix) => target === this.name + suffix)) {
      throw new RequestInvalid("forbidden-target", `${target} can never be a target: name a topic of yours`);
    }
  }

  #record(partition, key, value, headers) {
    const message = { key, value, headers };
    if (partition !== null) message.partition = partition;
    return { topic: this.name, messages: [message] };
  }
}

export function partitionFor(key, partitions) {
  return (murmur2(key) & 0x7fffffff) % partitions;
}

export function parseOrigin(origin) {
  const match = typeof origin === "string" ? ORIGIN.exec(origin) : null;
  if (match === null || !isTopic(match[1]) || Number(match[2]) >= 2 ** 31 || BigInt(match[3]) >= 2n ** 63n) {
    throw new FormatError("not an origin, which is <request topic>/<partition>/<offset>");
  }
  return { topic: match[1], partition: Number(match[2]), offset: match[3] };
}

export function readDelivered(headers) {
  const added = {};
  const message = {};
  for (const [name, value] of Object.entries(headers ?? {})) {
    if (isAdded(name)) added[name] = [value].flat().at(-1)?.toString() ?? "";
    else message[name] = value;
  }
  const number = (name) => (added[name] === undefined ? null : readNatural(name, added[name]));
  const first = added["postdate-first-origin"];
  if (added["postdate-due"] === undefined) {
    throw new FormatError("the record has no postdate-due: Postdate did not deliver it");
  }
  return {
    origin: parseOrigin(added["postdate-origin"]),
    dueMs: number("postdate-due"),
    id: added["postdate-id"] ?? null,
    attempt: number("postdate-attempt"),
    firstOrigin: first === undefined ? null : parseOrigin(first),
    firstDueMs: number("postdate-first-due"),
    error: added["postdate-error"] ?? null,
    headers: message,
  };
}

export function readVerdict(value) {
  if (value === null || value.length > VERDICT_BYTES_MAX) {
    throw new FormatError("the record has no value, or a larger one than a verdict has");
  }
  let read;
  try {
    read = JSON.parse(new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(value));
  } catch (error) {
    throw new FormatError("a verdict is not JSON in UTF-8");
  }
  if (typeof read !== "object" || read === null || read.v !== 1) {
    throw new FormatError("a verdict is no object, or has a version other than 1: use a newer client");
  }
  const { origin, id = null, verdict, of = null, at } = read;
  if (!VERDICTS.has(verdict)) {
    throw new FormatError("a verdict has a word that this client does not know: use a newer client");
  }
  if (!Number.isSafeInteger(at) || at < 0 || (id !== null && typeof id !== "string")) {
    throw new FormatError("a verdict has an id that is not a text, or a time that is not epoch milliseconds");
  }
  return { origin: parseOrigin(origin), id, verdict, of: of === null ? null : parseOrigin(of), atMs: at };
}

function messageHeaders(headers) {
  const isDelivered = "postdate-origin" in headers;
  const kept = {};
  for (const [name, value] of Object.entries(headers)) {
    if (!isOurs(name)) kept[name] = headerValue(name, value);
    else if (!isAdded(name) || (name === "postdate-id" && !isDelivered)) throw reserved(name);
  }
  return kept;
}

function headerValue(name, value) {
  if (Array.isArray(value)) return value.map((each) => headerValue(name, each));
  if (value === null || value === undefined) {
    throw new RequestInvalid("bad-headers", `KafkaJS cannot send header ${name} without a value: leave it out`);
  }
  return bytes(`header ${name}`, value);
}

function addTime(headers, { at, delayMs, level }) {
  const given = Object.entries({ at, delayMs, level }).filter(([, value]) => value !== undefined);
  if (given.length === 0) throw new RequestInvalid("missing-time", "give one of at, delayMs and level");
  if (given.length > 1) {
    throw new RequestInvalid("conflicting-time", `give only one of ${given.map(([name]) => name).join(" and ")}`);
  }
  if (level !== undefined) {
    headers["postdate-level"] = text(natural("bad-level", "level", level));
    return;
  }
  const isInstant = at !== undefined;
  const milliseconds = isInstant ? ceilMs("at", at instanceof Date ? at.getTime() : at) : ceilMs("delayMs", delayMs);
  if (milliseconds - (isInstant ? Date.now() : 0) > HORIZON_MS) {
    throw new RequestInvalid("beyond-horizon", "due later than 400 days from now: give an earlier time");
  }
  headers[isInstant ? "postdate-at" : "postdate-delay"] = text(milliseconds);
}

function addGrace(headers, graceMs) {
  if (graceMs !== undefined) headers["postdate-grace"] = text(ceilMs("graceMs", graceMs));
}

function ceilMs(name, value) {
  const milliseconds = Math.ceil(typeof value === "number" ? value : NaN);
  if (!Number.isSafeInteger(milliseconds) || value < 0) {
    throw new RequestInvalid("bad-time", `${name} must be milliseconds, 0 or more`);
  }
  return milliseconds;
}

function natural(reason, name, value) {
  if (!Number.isSafeInteger(value) || value < 0) {
    throw new RequestInvalid(reason, `${name} must be a whole number, 0 or more`);
  }
  return value;
}

function readNatural(name, value) {
  const number = /^[0-9]{1,19}$/.test(value) ? Number(value) : NaN;
  if (!Number.isSafeInteger(number)) throw new FormatError(`${name} is not a whole number of 0 or more`);
  return number;
}

function idBytes(id) {
  if (typeof id !== "string") throw new TypeError(`an id must be a string, not ${typeof id}`);
  const named = text(id);
  if (named.length < 1 || named.length > ID_BYTES_MAX) {
    throw new RequestInvalid("bad-id", `an id has 1 to ${ID_BYTES_MAX} bytes, this one ${named.length}`);
  }
  return named;
}

function bytes(name, value) {
  if (value === null || Buffer.isBuffer(value)) return value;
  if (typeof value === "string") return text(value);
  throw new TypeError(`${name} must be a Buffer, a string or null, not ${typeof value}`);
}

function text(value) {
  return Buffer.from(`${value}`);
}

function reserved(name) {
  return new RequestInvalid("unknown-header", `header ${name} is Postdate's: set it with an argument`);
}

function isOurs(name) {
  return name.slice(0, 9).toLowerCase() === "postdate-";
}

function isAdded(name) {
  return COUNTED.has(name) || ["postdate-moved", "postdate-error"].includes(name) || name.startsWith("postdate-dead-");
}

function isTopic(name) {
  return typeof name === "string" && TOPIC.test(name) && name !== "." && name !== "..";
}

function murmur2(key) {
  const m = 0x5bd1e995;
  const words = key.length >>> 2;
  let h = 0x9747b28c ^ key.length;
  for (let i = 0; i < words; i++) {
    let k = Math.imul(key.readInt32LE(i * 4), m);
    k = Math.imul(k ^ (k >>> 24), m);
    h = Math.imul(h, m) ^ k;
  }
  if (key.length % 4 > 0) {
    for (let i = words * 4; i < key.length; i++) h ^= key[i] << (8 * (i % 4));
    h = Math.imul(h, m);
  }
  h = Math.imul(h ^ (h >>> 13), m);
  return h ^ (h >>> 15);
}
