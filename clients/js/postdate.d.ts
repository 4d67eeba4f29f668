/** Headers as KafkaJS has them: a name that occurs twice has an array of values. */
export type Headers = Record<string, Buffer | string | (Buffer | string)[] | undefined>;

/**
 * The argument of KafkaJS's `producer.send` and `transaction.send`, with one message, or that of a bulk control with one
 * for each partition.
 */
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
  /** The message leaves within this time after its due time. */
  windowMs?: number;
  /** It leaves at the emptiest moment of its window that the sidecar knows. */
  spread?: "even";
  /** Which message stays if one of this id is pending; default: `replace`. */
  ifPending?: "replace" | "keep";
  /** The message is due at most this time after the first of the requests that replaced one another. */
  latestMs?: number;
  /** Ends the request if a message of its id, requested with this option too, was delivered lately. */
  ifEnded?: "drop";
}

/** A recurring schedule: with `cron`, or with `everyMs`. docs/calendar.md has the rules. */
export interface RecurringOptions {
  /** Names the schedule. The same id replaces it, and `cancel` ends it. */
  id: string;
  /** The key with which each occurrence arrives. Required: KafkaJS cannot send a header without a value. */
  key: Buffer | string;
  /** Headers of the message. Those of a delivered record may be given: what Postdate added is left out. */
  headers?: Headers;
  /** 5 fields, or 6 with seconds first, or an expression such as `@daily`. */
  cron?: string;
  /** The time zone of `cron`, an IANA name; default: UTC. */
  zone?: string;
  /** What happens to times of `cron` that do not exist; default: `next`. */
  gap?: "next" | "skip";
  /** Which of the times of `cron` that exist twice are occurrences; default: `first`. */
  fold?: "first" | "last" | "both";
  /** The interval: occurrences are at its multiples since 1970, plus `phaseMs`. */
  everyMs?: number;
  phaseMs?: number;
  /** The first instant that may be a nominal time; default: after the request. */
  start?: Date | number;
  /** The last one. */
  end?: Date | number;
  /** The number of the last occurrence. */
  count?: number;
  /** Which late occurrences are delivered; default: `all`. */
  missed?: "all" | "last" | "none";
  /** Occurrences that are later than this are skipped. */
  catchUpMs?: number;
  /** Each occurrence leaves within this time after its nominal time. */
  windowMs?: number;
  /** Occurrences that would leave later than this are skipped. */
  graceMs?: number;
  targetPartition?: number;
}

/** The pending messages on which a bulk control acts: those that match all given selectors, at least one. */
export interface Selection {
  target?: string;
  /** With which the id begins. */
  idPrefix?: string;
  /** The key of the target. */
  key?: Buffer | string;
  /** Due times, as requested, at or after this. */
  from?: Date | number;
  /** Due times, as requested, before this. */
  until?: Date | number;
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
  /** `partitions` must be the number of the live topic: read it from the cluster. */
  constructor(name: string, partitions: number);
  readonly name: string;
  readonly partitions: number;
  /** Returns the request that delivers `value` to `target`; null is delivered as null. */
  schedule(target: string, value: Buffer | string | null, options: MessageOptions): RequestRecord;
  /**
   * Returns the request that delivers `value` to `target` again and again. It does not check whether the times of an
   * expression exist: the sidecar refuses 30 February.
   */
  repeat(target: string, value: Buffer | string | null, options: RecurringOptions): RequestRecord;
  /** Returns the request that ends a pending message. Its verdict shows whether it was in time. */
  cancel(named: Named): RequestRecord;
  /**
   * Returns the request that pauses a recurring schedule: its nominal times from the timestamp of the request until the
   * timestamp of a `resume` request are skipped.
   */
  pause(named: Named): RequestRecord;
  /** Returns the request that ends a pause: nominal times from its timestamp on are delivered again. */
  resume(named: Named): RequestRecord;
  /**
   * Returns the request that delivers a recurring schedule once more, at the timestamp of the request. That consumes no
   * occurrence number.
   */
  trigger(named: Named): RequestRecord;
  /**
   * Returns the request that delivers a recurring schedule once more for each of its nominal times from `start` to `end`,
   * both included, which have passed: dates or epoch milliseconds. That consumes no occurrence number.
   */
  backfill(options: Named & { start: Date | number; end: Date | number }): RequestRecord;
  /** Returns the request that moves a pending message to another time; its content does not change. */
  reschedule(options: Named & When & { graceMs?: number }): RequestRecord;
  /** Returns the request that delivers a pending message now: a reschedule without delay. */
  deliver(named: Named): RequestRecord;
  /** Returns the requests that end every selected message. The verdict of each, `applied`, has the number of messages. */
  cancelSelected(selection: Selection): RequestRecord;
  /**
   * Returns the requests that move every selected message by a time, which may be negative. Send them once: a second
   * control moves the same messages again.
   */
  rescheduleSelected(options: Selection & { byMs: number }): RequestRecord;
  /** Returns the requests that deliver every selected message now. */
  deliverSelected(selection: Selection): RequestRecord;
  /**
   * Returns the request by which a consumer returns a message, to be delivered again to `topic` later. `message` is as
   * the consumer got it. `policy`: a text (`base=1s, attempts=5`) or the name of a policy of the request topic.
   * `error` gives the next consumer the reason.
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
  /** The number of the retry; null, like the next two, unless the message was returned before. */
  attempt: number | null;
  firstOrigin: Origin | null;
  firstDueMs: number | null;
  /** The reason of the return; null if none was given. */
  error: string | null;
  /** The number of the occurrence of a recurring schedule, from 1: with `origin`, unique for ever. null: none. */
  occurrence: number | null;
  /** The nominal time of the next occurrence. null: this was the last one. */
  nextMs: number | null;
  /**
   * Of an extra delivery of a recurring schedule, which is no occurrence: the origin of the control that asked for it,
   * and the number of the delivery, unique for ever. null: none.
   */
  extra: string | null;
  headers: Headers;
}

/** Reads the headers of a delivered record. Throws FormatError: Postdate did not deliver it. */
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
  | "too-late"
  | "kept"
  | "dropped"
  | "applied"
  | "paused"
  | "resumed"
  | "triggered"
  | "backfilled";

/** One verdict: the answer to the request `origin`. */
export interface VerdictRecord {
  origin: Origin;
  /** The id that the request names. */
  id: string | null;
  verdict: Verdict;
  /** The request that was acted on, if there is one. */
  of: Origin | null;
  /** The request of the same id that survived this one, if there is one. */
  by: Origin | null;
  /** Of `applied`: the number of messages on which a bulk control has acted. */
  count: number | null;
  /** The clock of the writer. */
  atMs: number;
}

/** Returns the verdict in the value of a record on the verdicts topic. Throws FormatError: it contains none. */
export function readVerdict(value: Buffer | null): VerdictRecord;
