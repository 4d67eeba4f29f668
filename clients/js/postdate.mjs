// Requests to Postdate for KafkaJS, and readers of delivered records and verdicts.
//
//     const requests = new RequestTopic("postdate.requests", partitions);
//     await producer.send(requests.schedule("reminders", "pay!", { id: "order-9", key: "customer-7", delayMs: 7_200_000 }));
//     await producer.send(requests.cancel({ id: "order-9" }));
//     const nightly = { id: "nightly", key: "report", cron: "30 2 * * *", zone: "Europe/Berlin" };
//     await producer.send(requests.repeat("reports", "{}", nightly));
//
// Each message names its partition, so the partitioner of the producer does not matter. Nothing here opens a connection.
// postdate.d.ts has the types and describes each function.

const DAY_MS = 86_400_000;
const HORIZON_MS = 400 * DAY_MS;
const WINDOW_MS_MAX = 2 ** 39 - 1;
const EVERY_MS_MIN = 1_000;
const EVERY_MS_MAX = 36_525 * DAY_MS;
const NOMINAL_MS_END = 253_339_228_800_000; // the year 9998
const ID_BYTES_MAX = 256;
const SELECTED_KEY_BYTES_MAX = 4_096;
const POLICY_LENGTH_MAX = 256;
const CRON_LENGTH_MAX = 512;
const VERDICT_BYTES_MAX = 8 * 1024;
const TOPIC = /^[a-zA-Z0-9._-]{1,249}$/;
const ORIGIN = /^([^/]+)\/(0|[1-9][0-9]{0,9})\/(0|[1-9][0-9]{0,18})$/;
// From these the attempts of a return count.
const COUNTED = new Set(
  ["origin", "due", "id", "attempt", "first-origin", "first-due"].map((name) => `postdate-${name}`),
);
const ADDED = new Set(["moved", "error", "occurrence", "next", "extra"].map((name) => `postdate-${name}`));
const OWN = ["", ".dispatch-log", ".store", ".dead-letters", ".verdicts"];
const VERDICTS = new Map(
  [
    ["accepted rejected cancelled rescheduled replaced delivered dead not-found too-late", 1],
    ["kept dropped applied", 2],
    ["paused resumed triggered backfilled", 3],
  ].flatMap(([words, version]) => words.split(" ").map((word) => [word, version])),
);
const SURVIVED = new Set(["kept", "dropped"]);
const ASCII = /^[ -~]*$/;
// Name, lowest and highest value, names of values, and the terms that only this field has.
const CRON_FIELDS = [
  ["second", 0, 59],
  ["minute", 0, 59],
  ["hour", 0, 23],
  ["day of month", 1, 31, [], /^LW?$/],
  ["month", 1, 12, "JAN FEB MAR APR MAY JUN JUL AUG SEP OCT NOV DEC".split(" ")],
  [
    "day of week",
    0,
    7,
    "SUN MON TUE WED THU FRI SAT".split(" "),
    /^([0-7]L|([0-7]|SUN|MON|TUE|WED|THU|FRI|SAT)#[1-5])$/,
  ],
];
const CRON_TERM = /^(?:\*|([0-9]{1,2}|[A-Z]{3})(?:-([0-9]{1,2}|[A-Z]{3}))?)(?:\/([0-9]{1,2}))?$/;
const CRON_MACRO = /^@(hourly|daily|midnight|weekly|monthly|yearly|annually)$/i;
const NUMBER = "([0-9]+(?:\\.[0-9]+)?)";
const LENGTHS = [
  new RegExp(`^(?:${NUMBER}d)?(?:${NUMBER}h)?(?:${NUMBER}m)?(?:${NUMBER}s)?(?:${NUMBER}ms)?$`),
  new RegExp(`^P(?=[0-9T])(?:${NUMBER}D)?(?:T(?=[0-9])(?:${NUMBER}H)?(?:${NUMBER}M)?(?:${NUMBER}S)?)?$`),
];
// So that 1.1h, which no number is, rounds up to no more than 3960000 ms.
const ROUNDING_ERROR = 1 - 1e-12;
const UNITS_MS = [DAY_MS, 3_600_000, 60_000, 1_000, 1];
const POLICY_PARTS = {
  base: (value) => lengthMs(value) > 0,
  max: (value) => lengthMs(value) <= HORIZON_MS,
  factor: (value) => /^[0-9]{1,3}(\.[0-9]{1,2})?$/.test(value) && Number(value) >= 1 && Number(value) <= 100,
  attempts: (value) => /^[0-9]{1,4}$/.test(value) && Number(value) >= 1 && Number(value) <= 1_000,
  jitter: (value) => /^[0-9]{1,3}%$/.test(value) && Number.parseInt(value, 10) <= 100,
};

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

  schedule(target, value, options = {}) {
    const { key = null, headers = {}, at, delayMs, level, id, graceMs, targetPartition, ...rest } = options;
    const { windowMs, spread, ifPending, latestMs, ifEnded, ...unknown } = rest;
    refuseUnknown(unknown);
    const all = messageHeaders(headers);
    this.#checkTarget(target);
    all["postdate-topic"] = text(target);
    const timeMs = addTime(all, { at, delayMs, level });
    addLength(all, "postdate-grace", "graceMs", graceMs);
    addLength(all, "postdate-window", "windowMs", windowMs, "bad-window");
    if (windowMs !== undefined && timeMs + Math.ceil(windowMs) > HORIZON_MS) {
      throw new RequestInvalid("beyond-horizon", "due, with its window, later than 400 days from now: shorten one");
    }
    if (spread !== undefined && windowMs === undefined) {
      throw new RequestInvalid("bad-spread", "spread needs windowMs, the window in which to spread");
    }
    addChoice(all, "postdate-spread", spread, ["even"], "bad-spread");
    if (id === undefined && (ifPending ?? ifEnded ?? latestMs) !== undefined) {
      throw new RequestInvalid("missing-id", "ifPending, ifEnded and latestMs need an id");
    }
    addChoice(all, "postdate-if-pending", ifPending, ["replace", "keep"], "bad-if-pending");
    addChoice(all, "postdate-if-ended", ifEnded, ["drop"], "bad-if-ended");
    if (ifPending === "keep" && latestMs !== undefined) {
      throw new RequestInvalid("bad-latest", "a request with ifPending keep replaces nothing: leave latestMs out");
    }
    addLength(all, "postdate-latest", "latestMs", latestMs, "bad-latest");
    addPartition(all, targetPartition);
    const keyBytes = bytes("key", key);
    if (id === undefined) {
      return this.#record(keyBytes && partitionFor(keyBytes, this.partitions), keyBytes, bytes("value", value), all);
    }
    return this.#named(id, keyBytes, bytes("value", value), all);
  }

  repeat(target, value, options) {
    const { id, key = null, headers = {}, cron, zone, gap, fold, everyMs, phaseMs, ...bounds } = options;
    const { start, end, count, missed, catchUpMs, windowMs, graceMs, targetPartition, ...unknown } = bounds;
    refuseUnknown(unknown);
    const all = messageHeaders(headers);
    this.#checkTarget(target);
    all["postdate-topic"] = text(target);
    if ((cron === undefined) === (everyMs === undefined)) throw badSchedule("give one of cron and everyMs");
    if (cron === undefined) {
      if ((zone ?? gap ?? fold) !== undefined) {
        throw badSchedule("everyMs takes no zone, gap and fold: for times of a zone use cron");
      }
      all["postdate-every"] = text(interval(everyMs, phaseMs));
    } else {
      if (phaseMs !== undefined) throw badSchedule("phaseMs belongs to everyMs: leave it out");
      all["postdate-cron"] = text(checkedCron(cron));
      if (zone !== undefined) all["postdate-zone"] = text(checkedZone(zone));
      addChoice(all, "postdate-gap", gap, ["next", "skip"], "bad-schedule");
      addChoice(all, "postdate-fold", fold, ["first", "last", "both"], "bad-schedule");
    }
    addChoice(all, "postdate-missed", missed, ["all", "last", "none"], "bad-schedule");
    const startMs = addInstant(all, "postdate-start", "start", start);
    const endMs = addInstant(all, "postdate-end", "end", end);
    if (Math.max(startMs ?? 0, endMs ?? 0) >= NOMINAL_MS_END) {
      throw badSchedule("start or end lies after the year 9997: give an earlier one, or leave it out");
    }
    if (endMs < (startMs ?? Date.now())) throw badSchedule("end lies before start, or in the past: give a later one");
    if (count !== undefined) all["postdate-count"] = text(natural("bad-schedule", "count", count, 1));
    addLength(all, "postdate-catch-up", "catchUpMs", catchUpMs);
    addLength(all, "postdate-window", "windowMs", windowMs, "bad-schedule");
    addLength(all, "postdate-grace", "graceMs", graceMs);
    addPartition(all, targetPartition);
    return this.#named(id, bytes("key", key), bytes("value", value), all);
  }

  cancel({ id, origin }) {
    return this.#control({ id, origin }, { "postdate-action": text("cancel") });
  }

  pause({ id, origin }) {
    return this.#control({ id, origin }, { "postdate-action": text("pause") });
  }

  resume({ id, origin }) {
    return this.#control({ id, origin }, { "postdate-action": text("resume") });
  }

  trigger({ id, origin }) {
    return this.#control({ id, origin }, { "postdate-action": text("trigger") });
  }

  backfill({ id, origin, start, end }) {
    const headers = { "postdate-action": text("backfill") };
    const startMs = addInstant(headers, "postdate-start", "start", start);
    const endMs = addInstant(headers, "postdate-end", "end", end);
    if (startMs === undefined || endMs === undefined) throw new RequestInvalid("missing-time", "give start and end");
    if (endMs < startMs || endMs > Date.now()) {
      throw new RequestInvalid("bad-time", "end lies before start, or in the future: give an earlier range");
    }
    return this.#control({ id, origin }, headers);
  }

  reschedule({ id, origin, at, delayMs, level, graceMs }) {
    const headers = { "postdate-action": text("reschedule") };
    addTime(headers, { at, delayMs, level });
    addLength(headers, "postdate-grace", "graceMs", graceMs);
    return this.#control({ id, origin }, headers);
  }

  deliver({ id, origin }) {
    return this.reschedule({ id, origin, delayMs: 0 });
  }

  cancelSelected(selection) {
    return this.#bulk(selection, { "postdate-action": text("cancel") });
  }

  rescheduleSelected({ byMs, ...selection }) {
    const milliseconds = ceilMs("the size of byMs", Math.abs(byMs));
    if (milliseconds === 0) throw new RequestInvalid("bad-time", "a move by 0 moves nothing: give another byMs");
    if (milliseconds > HORIZON_MS) throw new RequestInvalid("beyond-horizon", "byMs is at most 400 days: give less");
    const by = byMs < 0 ? -milliseconds : milliseconds;
    return this.#bulk(selection, { "postdate-action": text("reschedule"), "postdate-by": text(by) });
  }

  deliverSelected(selection) {
    return this.#bulk(selection, { "postdate-action": text("reschedule"), "postdate-delay": text(0) });
  }

  retry(topic, message, policy, error) {
    checkPolicy(policy);
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

  #named(id, key, value, headers) {
    const named = idBytes(id);
    if (key === null) {
      throw new RequestInvalid("bad-headers", "a message with an id needs a key: KafkaJS cannot send a null header");
    }
    headers["postdate-id"] = named;
    headers["postdate-key"] = key;
    return this.#record(partitionFor(named, this.partitions), named, value, headers);
  }

  #bulk({ target, idPrefix, key, from, until, ...unknown }, headers) {
    refuseUnknown(unknown);
    const selectors = {};
    if (target !== undefined) {
      if (!isTopic(target)) throw badSelection("target is not the name of a Kafka topic: use letters, digits, . _ -");
      selectors["postdate-select-topic"] = text(target);
    }
    if (idPrefix !== undefined) {
      const prefix = bytes("idPrefix", idPrefix);
      if (prefix.length < 1 || prefix.length > ID_BYTES_MAX) {
        throw badSelection(`idPrefix has 1 to ${ID_BYTES_MAX} bytes, this one ${prefix.length}`);
      }
      selectors["postdate-select-id"] = prefix;
    }
    if (key !== undefined) {
      const keyBytes = bytes("key", key);
      if (keyBytes === null || keyBytes.length > SELECTED_KEY_BYTES_MAX) {
        throw badSelection(`key is a Buffer or a string of at most ${SELECTED_KEY_BYTES_MAX} bytes`);
      }
      selectors["postdate-select-key"] = keyBytes;
    }
    const fromMs = addInstant(selectors, "postdate-select-from", "from", from);
    const untilMs = addInstant(selectors, "postdate-select-until", "until", until);
    if (fromMs >= untilMs) throw badSelection("from must lie before until");
    const all = { ...headers, ...selectors };
    if (Object.keys(selectors).length === 0) throw badSelection("give target, idPrefix, key, from or until");
    const partitions = Array.from({ length: this.partitions }, (_, partition) => partition);
    const messages = partitions.map((partition) => ({ key: null, value: null, headers: { ...all }, partition }));
    return { topic: this.name, messages };
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
        `the origin names partition ${parsed.partition} of ${parsed.topic}, and ${this.name} was given as having ` +
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
    occurrence: number("postdate-occurrence"),
    nextMs: number("postdate-next"),
    extra: readExtra(added["postdate-extra"]),
    headers: message,
  };
}

function readExtra(extra) {
  if (extra === undefined) return null;
  const slash = Math.max(extra.lastIndexOf("/"), 0);
  parseOrigin(extra.slice(0, slash));
  readNatural("postdate-extra", extra.slice(slash + 1));
  return extra;
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
  if (typeof read !== "object" || read === null || ![1, 2, 3].includes(read.v)) {
    throw new FormatError("a verdict is no object, or has a version other than 1 to 3: use a newer client");
  }
  const { v, origin, id = null, verdict, of = null, by = null, at, count } = read;
  const isApplied = verdict === "applied";
  const isSurvived = SURVIVED.has(verdict);
  if (!VERDICTS.has(verdict)) {
    throw new FormatError("a verdict has a word that this client does not know: use a newer client");
  }
  if (!isNatural(at) || (id !== null && typeof id !== "string")) {
    throw new FormatError("a verdict has an id that is not a text, or a time that is not epoch milliseconds");
  }
  if (VERDICTS.get(verdict) !== v || isApplied !== ("count" in read) || (isApplied && !isNatural(count))) {
    throw new FormatError("a verdict has the version of another one, or its count, or a count that is not a number");
  }
  if (isSurvived && by === null) throw new FormatError(`a verdict ${verdict} names no request that survived`);
  const named = (each) => (each === null ? null : parseOrigin(each));
  return { origin: parseOrigin(origin), id, verdict, of: named(of), by: named(by), count: count ?? null, atMs: at };
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
    return 0;
  }
  const isInstant = at !== undefined;
  const milliseconds = isInstant ? ceilMs("at", at instanceof Date ? at.getTime() : at) : ceilMs("delayMs", delayMs);
  const fromNowMs = milliseconds - (isInstant ? Date.now() : 0);
  if (fromNowMs > HORIZON_MS) {
    throw new RequestInvalid("beyond-horizon", "due later than 400 days from now: give an earlier time");
  }
  headers[isInstant ? "postdate-at" : "postdate-delay"] = text(milliseconds);
  return fromNowMs;
}

// A length with a reason is refused for it if it is 0 or longer than 17 years.
function addLength(headers, header, name, value, reason) {
  if (value === undefined) return;
  const milliseconds = ceilMs(name, value);
  if (reason !== undefined && (milliseconds === 0 || milliseconds > WINDOW_MS_MAX)) {
    throw new RequestInvalid(reason, `${name} is 0 or longer than 17 years: leave it out, or give another one`);
  }
  headers[header] = text(milliseconds);
}

function addInstant(headers, header, name, value) {
  if (value === undefined) return undefined;
  const milliseconds = ceilMs(name, value instanceof Date ? value.getTime() : value);
  headers[header] = text(milliseconds);
  return milliseconds;
}

function addPartition(headers, partition) {
  if (partition === undefined) return;
  headers["postdate-partition"] = text(natural("bad-partition", "targetPartition", partition));
}

function addChoice(headers, header, value, known, reason) {
  if (value === undefined) return;
  if (!known.includes(value)) throw new RequestInvalid(reason, `${header} is one of ${known.join(", ")}, not ${value}`);
  headers[header] = text(value);
}

// A misspelt option must not silently change a delivery.
function refuseUnknown(unknown) {
  const [name] = Object.keys(unknown);
  if (name !== undefined) throw new TypeError(`there is no option ${name}: see postdate.d.ts`);
}

function interval(everyMs, phaseMs) {
  const every = ceilMs("everyMs", everyMs);
  const phase = phaseMs === undefined ? 0 : ceilMs("phaseMs", phaseMs);
  if (every < EVERY_MS_MIN || every > EVERY_MS_MAX || phase >= every) {
    throw badSchedule("everyMs is from 1 s to 36525 days, and phaseMs is shorter");
  }
  return phaseMs === undefined ? `${every}` : `${every}/${phase}`;
}

function checkedCron(cron) {
  if (typeof cron !== "string") throw new TypeError(`cron must be a string, not ${typeof cron}`);
  if (CRON_MACRO.test(cron)) return cron;
  const fields = cron.toUpperCase().split(" ");
  if (cron.length > CRON_LENGTH_MAX || !ASCII.test(cron) || ![5, 6].includes(fields.length)) {
    throw badSchedule(
      "a cron expression has 5 fields, or 6 with seconds first, separated by single spaces, such as 30 9 * * MON-FRI; " +
        "@hourly, @daily, @weekly, @monthly and @yearly are others",
    );
  }
  fields.forEach((field, index) => {
    const known = CRON_FIELDS[index + 6 - fields.length];
    for (const term of field.split(",")) checkTerm(term, ...known);
  });
  return cron;
}

function checkTerm(term, name, lowest, highest, names = [], special = undefined) {
  if (special?.test(term)) return;
  const [, first, last, steps] = CRON_TERM.exec(term) ?? [, "none"];
  // Weekdays have one digit.
  const numberOf = (value) => (highest < 10 && value.length > 1 ? NaN : Number(value));
  const valueOf = (value) => (names.includes(value) ? names.indexOf(value) + lowest : numberOf(value));
  const low = first === undefined ? lowest : valueOf(first);
  const high = last === undefined ? low : valueOf(last);
  const step = Number(steps ?? 1);
  // A name that is unknown is NaN, which no comparison accepts.
  if (!(lowest <= low && low <= high && high <= highest && step > 0 && step <= highest)) {
    const remedy = `*, ${lowest} to ${highest}, an ascending range such as ${lowest}-${highest}, or a step such as */2`;
    throw badSchedule(`cron expression: ${term} is no ${name}: give ${remedy}`);
  }
}

function checkedZone(zone) {
  try {
    // Offsets are zones of Intl, not of IANA.
    if (/^[A-Za-z]/.test(zone)) {
      const { timeZone } = new Intl.DateTimeFormat("en", { timeZone: zone }).resolvedOptions();
      if (timeZone === zone || timeZone.toLowerCase() !== zone.toLowerCase()) return zone;
    }
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
  }
  throw badSchedule(`${zone} is not a time zone: give an IANA name such as Europe/Berlin`);
}

function checkPolicy(policy) {
  const what = `base=1s, factor=2, max=1h, attempts=12, jitter=20%, or the name of one`;
  const remedy = `give a policy such as ${what}, of at most ${POLICY_LENGTH_MAX} ASCII characters`;
  if (typeof policy !== "string" || policy.length > POLICY_LENGTH_MAX || !ASCII.test(policy)) {
    throw new RequestInvalid("bad-retry", remedy);
  }
  if (/^ *[A-Za-z0-9._-]{1,64} *$/.test(policy)) return;
  const parts = {};
  for (const part of policy.split(",")) {
    const [, name, value] = /^ *([a-z]+) *= *(.*?) *$/.exec(part) ?? [];
    if (!Object.hasOwn(POLICY_PARTS, name) || Object.hasOwn(parts, name) || !POLICY_PARTS[name](value)) {
      throw new RequestInvalid("bad-retry", `"${part}" is no part of a policy, or is repeated: ${remedy}`);
    }
    parts[name] = value;
  }
  if (!(lengthMs(parts.base ?? "") <= lengthMs(parts.max ?? "1h"))) {
    throw new RequestInvalid("bad-retry", `a policy needs a base, at most its max, which is 1h unless given: ${remedy}`);
  }
}

// The milliseconds of a duration such as 1500, 90s, 2h30m or PT5M; NaN: it is none.
function lengthMs(value) {
  if (/^[0-9]{1,19}$/.test(value)) return Number(value);
  const weeks = new RegExp(`^P${NUMBER}W$`).exec(value);
  if (weeks !== null) return 7 * DAY_MS * Number(weeks[1]);
  const match = value === "" ? null : LENGTHS.map((form) => form.exec(value)).find((found) => found !== null);
  const given = (match ?? []).slice(1).map((number, index) => [number, UNITS_MS[index]]);
  const present = given.filter(([number]) => number !== undefined);
  // A fraction is allowed in the last number alone.
  if (present.length === 0 || present.slice(0, -1).some(([number]) => number.includes("."))) return NaN;
  const sum = present.reduce((total, [number, unitMs]) => total + Number(number) * unitMs, 0);
  return Math.ceil(sum * ROUNDING_ERROR);
}

function ceilMs(name, value) {
  const milliseconds = Math.ceil(typeof value === "number" ? value : NaN);
  if (!Number.isSafeInteger(milliseconds) || value < 0) {
    throw new RequestInvalid("bad-time", `${name} must be milliseconds, 0 or more`);
  }
  return milliseconds;
}

function natural(reason, name, value, lowest = 0) {
  if (!isNatural(value) || value < lowest) {
    throw new RequestInvalid(reason, `${name} must be a whole number, ${lowest} or more`);
  }
  return value;
}

function isNatural(value) {
  return Number.isSafeInteger(value) && value >= 0;
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

function badSchedule(detail) {
  return new RequestInvalid("bad-schedule", detail);
}

function badSelection(detail) {
  return new RequestInvalid("bad-selection", detail);
}

function reserved(name) {
  return new RequestInvalid("unknown-header", `header ${name} is Postdate's: set it with an argument`);
}

function isOurs(name) {
  return name.slice(0, 9).toLowerCase() === "postdate-";
}

function isAdded(name) {
  return COUNTED.has(name) || ADDED.has(name) || name.startsWith("postdate-dead-");
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
