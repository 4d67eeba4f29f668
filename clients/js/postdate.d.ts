/** Headers as KafkaJS has them: a name that occurs twice has an array of values. */
export type Headers = Record<string, Buffer | string | (Buffer | string)[] | undefined>;

/** The argument of KafkaJS's `producer.send` and `transaction.send`, with one message. */
export interface RequestRecord {
  topic: string;
  messages: {
    key: Buffer | null;
    value: Buffer | null;
    headers: Record<string, Buffer | Buffer[]>;
    /** Where a control of the same id finds the message; left out if any partition serves. */
    partition?: number;
  }[];
}

/** When: exactly one of the three. Fractions of a millisecond round up. */
export interface When {
  /** A `Date`, or epoch milliseconds. */
  at?: Date | number;
  /** Counts from the timestamp of the request. */
  delayMs?: number;
  /** A delay level, 0 to 18; 0: immediately. */
  level?: number;
}

/** What a control acts on: exactly one of the two. */
export interface Named {
  id?: string;
  /** `<request topic>/<partition>/<offset>` of the request. */
  origin?: string;
}

export interface MessageOptions extends When {
  /** The key with which the message arrives. Required with an id: KafkaJS cannot send a header without a value. */
  key?: Buffer | string | null;
  /** Headers of the message. Those of a delivered record may be given: what Postdate added is left out. */
  headers?: Headers;
  /** Your name for the message while it is pending. Scheduling it again replaces the message. */
  id?: string;
  /** How late the message may be. Later, it becomes a dead letter. */
  graceMs?: number;
  targetPartition?: number;
}

/** A request that Postdate would refuse: correct the call, nothing was built. */
export class RequestInvalid extends Error {
  /** The reason that the dead letter would have. */
  readonly reason: string;
}

/** A record that Postdate, in a version known to this module, did not write. */
export class FormatError extends Error {}

/** Builds requests to one request topic. Its methods throw RequestInvalid, and TypeError for values of a wrong type. */
export class RequestTopic {
  /** `partitions` must be the number of the live topic: ask the cluster. */
  constructor(name: string, partitions: number);
  readonly name: string;
  readonly partitions: number;
  /** Returns the request that delivers `value` to `target`; null is delivered as null. */
  schedule(target: string, value: Buffer | string | null, options: MessageOptions): RequestRecord;
  /** Returns the request that ends a pending message. Its verdict tells whether it was in time. */
  cancel(named: Named): RequestRecord;
  /** Returns the request that moves a pending message to another time; its content does not change. */
  reschedule(options: Named & When & { graceMs?: number }): RequestRecord;
  /** Returns the request that delivers a pending message now: a reschedule without delay. */
  deliver(named: Named): RequestRecord;
  /**
   * Returns the request by which a consumer gives a message back, to be delivered again to `topic` later. `message` is as
   * the consumer got it. `policy`: a text (`base=1s, attempts=5`) or the name of a policy of the request topic.
   * `error` tells the next consumer why it comes back.
   */
  retry(
    topic: string,
    message: { key?: Buffer | null; value?: Buffer | null; headers?: Headers },
    policy: string,
    error?: string,
  ): RequestRecord;
  /** Returns the one partition of all requests that name this id. */
  partitionOf(id: string): number;
}

/** Returns the partition that the default partitioner of Kafka's Java client chooses for a key. */
export function partitionFor(key: Buffer, partitions: number): number;

/** The name of a request. The offset is a text, as in KafkaJS. */
export interface Origin {
  topic: string;
  partition: number;
  offset: string;
}

/** Returns the origin that a text names. Throws FormatError. */
export function parseOrigin(origin: string): Origin;

/** What Postdate adds to a delivered record, and the headers of the message. */
export interface Delivered {
  origin: Origin;
  dueMs: number;
  id: string | null;
  /** The number of the retry; null, like the next two, unless the message was given back before. */
  attempt: number | null;
  firstOrigin: Origin | null;
  firstDueMs: number | null;
  /** Why it was given back; null if that was not told. */
  error: string | null;
  headers: Headers;
}

/** Returns what the headers of a delivered record tell. Throws FormatError: Postdate did not deliver it. */
export function readDelivered(headers: Headers | undefined): Delivered;

export type Verdict =
  | "accepted"
  | "rejected"
  | "cancelled"
  | "rescheduled"
  | "replaced"
  | "delivered"
  | "dead"
  | "not-found"
  | "too-late";

/** One verdict: the answer to the request `origin`. */
export interface Answer {
  origin: Origin;
  /** The id that the request names. */
  id: string | null;
  verdict: Verdict;
  /** The request that was acted on, if there is one. */
  of: Origin | null;
  /** The clock of the writer. */
  atMs: number;
}

/** Returns the verdict in the value of a record on the verdicts topic. Throws FormatError: it contains none. */
export function readVerdict(value: Buffer | null): Answer;
