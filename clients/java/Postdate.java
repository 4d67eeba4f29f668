package postdate;

import static java.nio.charset.StandardCharsets.UTF_8;

import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.time.Duration;
import java.time.Instant;
import java.time.ZoneId;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.regex.Pattern;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.utils.Utils;

/**
 * Builds requests to one request topic of Postdate, and reads delivered records and verdicts.
 *
 * <pre>{@code
 * var requests = new Postdate("postdate.requests", producer.partitionsFor("postdate.requests").size());
 * producer.send(requests.schedule("reminders", value, Postdate.after(Duration.ofHours(2))).id("order-9").record());
 * producer.send(requests.cancel(Postdate.id("order-9")));
 * var nightly = Postdate.cron("30 2 * * *").zone("Europe/Berlin");
 * producer.send(requests.repeat("reports", value, "nightly", nightly).record());
 * }</pre>
 *
 * Each record names its partition, so the partitioner of the producer does not matter. The producer needs
 * {@code ByteArraySerializer} for key and value. Opens no connection; immutable, for any thread.
 */
public final class Postdate {
    private static final Duration HORIZON = Duration.ofDays(400);
    private static final int ID_BYTES_MAX = 256;
    private static final int SELECTED_KEY_BYTES_MAX = 4_096;
    private static final int POLICY_LENGTH_MAX = 256;
    private static final int CRON_LENGTH_MAX = 512;
    private static final long WINDOW_MS_MAX = (1L << 39) - 1;
    private static final Duration EVERY_MIN = Duration.ofSeconds(1);
    private static final Duration EVERY_MAX = Duration.ofDays(36_525);
    /** The year 9998. */
    private static final Instant NOMINAL_END = Instant.ofEpochMilli(253_339_228_800_000L);
    private static final Pattern TOPIC = Pattern.compile("[a-zA-Z0-9._-]{1,249}");
    /** From these the attempts of a return count. */
    private static final Set<String> COUNTED = Set.of(
        "postdate-origin", "postdate-due", "postdate-id", "postdate-attempt", "postdate-first-origin",
        "postdate-first-due");
    private static final Set<String> ADDED =
        Set.of("postdate-moved", "postdate-error", "postdate-occurrence", "postdate-next", "postdate-extra");

    private final String name;
    private final int partitions;
    private final Set<String> own;

    /**
     * Describes a request topic.
     *
     * @param name of the request topic
     * @param partitions of the live topic: read the number from the cluster
     */
    public Postdate(String name, int partitions) {
        if (!isTopic(name) || partitions < 1) {
            throw new IllegalArgumentException(
                "a request topic needs the name of a Kafka topic and its number of partitions, 1 or more");
        }
        this.name = name;
        this.partitions = partitions;
        this.own = Set.of(name, name + ".dispatch-log", name + ".store", name + ".dead-letters", name + ".verdicts");
    }

    /** A request that Postdate would refuse: correct the call, nothing was built. */
    public static final class RequestInvalid extends IllegalArgumentException {
        private static final long serialVersionUID = 1;
        private final String reason;

        RequestInvalid(String reason, String detail) {
            super(reason + ": " + detail);
            this.reason = reason;
        }

        /** Returns the reason that the dead letter would have. */
        public String reason() {
            return reason;
        }
    }

    /** A record that Postdate, in a version known to this class, did not write. */
    public static final class FormatException extends RuntimeException {
        private static final long serialVersionUID = 1;

        FormatException(String message) {
            super(message);
        }
    }

    /** When a message is due: of {@link #at}, {@link #after} or {@link #level}. */
    public static final class When {
        private final String header;
        private final long number;

        private When(String header, long number) {
            this.header = header;
            this.number = number;
        }

        /** How far from now it is; 0 for a level, whose length the sidecar knows. */
        private long delayMs() {
            return switch (header) {
                case "postdate-at" -> number - System.currentTimeMillis();
                case "postdate-delay" -> number;
                default -> 0;
            };
        }
    }

    /** What a control acts on: of {@link #id} or {@link #origin}. */
    public static final class Named {
        private final String header;
        private final String text;

        private Named(String header, String text) {
            this.header = header;
            this.text = text;
        }
    }

    /** Names this instant; a rest of a millisecond rounds up. */
    public static When at(Instant at) {
        if (at.isBefore(Instant.EPOCH)) {
            throw new RequestInvalid("bad-time", at + " lies before 1970");
        }
        return new When("postdate-at", ceilMs("at", Duration.between(Instant.EPOCH, at)));
    }

    /** Names the time this long after the timestamp of the request; a rest of a millisecond rounds up. */
    public static When after(Duration delay) {
        return new When("postdate-delay", ceilMs("delay", delay));
    }

    /** Names the time by a delay level; 0: immediately. */
    public static When level(int level) {
        if (level < 0) {
            throw new RequestInvalid("bad-level", "level " + level + " is negative: give 0 to 18");
        }
        return new When("postdate-level", level);
    }

    /** Names the pending message with this id. */
    public static Named id(String id) {
        return new Named("postdate-id", id);
    }

    /** Names the pending message of the request with this origin, {@code topic/partition/offset}. */
    public static Named origin(String origin) {
        return new Named("postdate-origin", origin);
    }

    /** Which message stays if one of the same id is pending. */
    public enum IfPending { REPLACE, KEEP }

    /** What happens to times that do not exist, because clocks are set forward; NEXT: once, right after the gap. */
    public enum Gap { NEXT, SKIP }

    /** Which of the times that exist twice, because clocks are set back, are occurrences. */
    public enum Fold { FIRST, LAST, BOTH }

    /** Which late occurrences are delivered; LAST: the newest, NONE: those that are at most 60 s late. */
    public enum Missed { ALL, LAST, NONE }

    /** When a recurring message is due: of {@link #cron} or {@link #every}. */
    public sealed interface Recurrence permits Cron, Every {
    }

    /** A cron expression in a time zone. Immutable. {@code zone}, {@code gap}, {@code fold}: null for the default. */
    public record Cron(String expression, String zone, Gap gap, Fold fold) implements Recurrence {
        /** Throws RequestInvalid: the expression or the zone is not one that Postdate reads. */
        public Cron {
            CronFields.check(expression);
            if (zone != null && !ZoneId.getAvailableZoneIds().contains(zone)) {
                throw badSchedule(
                    zone + " is not a time zone: give an IANA name such as Europe/Berlin, or update those of the JVM");
            }
        }

        /** Returns the same times in this zone, an IANA name; without one they are in UTC. */
        public Cron zone(String zone) {
            return new Cron(expression, zone, gap, fold);
        }

        /** Returns the same times with another rule for those that do not exist; by default {@link Gap#NEXT}. */
        public Cron gap(Gap gap) {
            return new Cron(expression, zone, gap, fold);
        }

        /** Returns the same times with another rule for those that exist twice; by default {@link Fold#FIRST}. */
        public Cron fold(Fold fold) {
            return new Cron(expression, zone, gap, fold);
        }
    }

    /** Multiples of an interval since 1970, plus a phase. Immutable. {@code phase}: null without one. */
    public record Every(Duration interval, Duration phase) implements Recurrence {
        /** Throws RequestInvalid: the interval or the phase is too short or too long. */
        public Every {
            long everyMs = ceilMs("interval", interval);
            long phaseMs = phase == null ? 0 : ceilMs("phase", phase);
            if (everyMs < EVERY_MIN.toMillis() || everyMs > EVERY_MAX.toMillis() || phaseMs >= everyMs) {
                throw badSchedule("an interval is from 1 s to 36525 days, and its phase is shorter");
            }
        }

        /** Returns the same times, this much later. */
        public Every phase(Duration phase) {
            return new Every(interval, phase);
        }
    }

    /**
     * Names the times of a cron expression: 5 fields, or 6 with seconds first, or one such as {@code @daily}. Whether it
     * has a date at all is not known here: the sidecar refuses 30 February.
     */
    public static Cron cron(String expression) {
        return new Cron(expression, null, null, null);
    }

    /** Names each multiple of an interval since 1970. */
    public static Every every(Duration interval) {
        return new Every(interval, null);
    }

    /**
     * The pending messages on which a bulk control acts: those that match all given selectors, at least one.
     * Immutable. {@code from} and {@code until}: due times, as requested, at or after the first and before the second.
     */
    public record Selection(String target, String idPrefix, byte[] key, Instant from, Instant until) {
        /** Returns a narrower selection: messages for this target. */
        public Selection target(String target) {
            return new Selection(target, idPrefix, key, from, until);
        }

        /** Returns a narrower selection: messages whose id begins with this text. */
        public Selection idPrefix(String idPrefix) {
            return new Selection(target, idPrefix, key, from, until);
        }

        /** Returns a narrower selection: messages with this target key. */
        public Selection key(byte[] key) {
            return new Selection(target, idPrefix, key, from, until);
        }

        /** Returns a narrower selection: messages due at or after this instant. */
        public Selection from(Instant from) {
            return new Selection(target, idPrefix, key, from, until);
        }

        /** Returns a narrower selection: messages due before this instant. */
        public Selection until(Instant until) {
            return new Selection(target, idPrefix, key, from, until);
        }
    }

    /** Starts the selection of a bulk control. */
    public static Selection select() {
        return new Selection(null, null, null, null, null);
    }

    /** Starts a request that delivers {@code value} to {@code target}; a null value is delivered as null. */
    public Message schedule(String target, byte[] value, When when) {
        return new Message(target, value, Objects.requireNonNull(when, "give at, after or level"));
    }

    /**
     * Starts a request that delivers {@code value} to {@code target} again and again. {@code id} names the schedule: the
     * same id replaces it, and {@link #cancel} ends it. docs/calendar.md has the rules.
     */
    public Recurring repeat(String target, byte[] value, String id, Recurrence times) {
        return new Recurring(target, value, id, Objects.requireNonNull(times, "give cron or every"));
    }

    /** Returns the record that ends a pending message. Its verdict shows whether it was in time. */
    public ProducerRecord<byte[], byte[]> cancel(Named named) {
        return control("cancel", named, null, null);
    }

    /**
     * Returns the record that pauses a recurring schedule: its nominal times from the timestamp of the record until the
     * timestamp of a {@link #resume} record are skipped.
     */
    public ProducerRecord<byte[], byte[]> pause(Named named) {
        return control("pause", named, null, null);
    }

    /** Returns the record that ends a pause: nominal times from its timestamp on are delivered again. */
    public ProducerRecord<byte[], byte[]> resume(Named named) {
        return control("resume", named, null, null);
    }

    /**
     * Returns the record that delivers a recurring schedule once more, at the timestamp of the record. That consumes no
     * occurrence number.
     */
    public ProducerRecord<byte[], byte[]> trigger(Named named) {
        return control("trigger", named, null, null);
    }

    /**
     * Returns the record that delivers a recurring schedule once more for each of its nominal times from {@code start} to
     * {@code end}, both included, which have passed. That consumes no occurrence number.
     */
    public ProducerRecord<byte[], byte[]> backfill(Named named, Instant start, Instant end) {
        if (end.isBefore(start) || end.isAfter(Instant.now())) {
            throw new RequestInvalid("bad-time", "the end lies before the start, or in the future: give an earlier range");
        }
        var range = new ArrayList<Header>();
        addInstant(range, "postdate-start", start);
        addInstant(range, "postdate-end", end);
        return control("backfill", named, range);
    }

    /** Returns the record that moves a pending message to another time; its content does not change. */
    public ProducerRecord<byte[], byte[]> reschedule(Named named, When when) {
        return reschedule(named, when, null);
    }

    /** As {@link #reschedule(Named, When)}; {@code grace} after the time the message becomes a dead letter. */
    public ProducerRecord<byte[], byte[]> reschedule(Named named, When when, Duration grace) {
        return control("reschedule", named, Objects.requireNonNull(when, "give at, after or level"), grace);
    }

    /** Returns the record that delivers a pending message now: a reschedule without delay. */
    public ProducerRecord<byte[], byte[]> deliver(Named named) {
        return control("reschedule", named, after(Duration.ZERO), null);
    }

    /**
     * Returns the records, one for each partition, that end every selected message. Produce all of them. The verdict of
     * each, {@link Verdict#APPLIED}, has the number of messages.
     */
    public List<ProducerRecord<byte[], byte[]>> cancelSelected(Selection selection) {
        return bulk(selection, header("postdate-action", "cancel"));
    }

    /**
     * Returns the records, one for each partition, that move every selected message by a time, which may be negative.
     * Produce each of them once: a second control moves the same messages again.
     */
    public List<ProducerRecord<byte[], byte[]>> rescheduleSelected(Selection selection, Duration by) {
        long milliseconds = ceilMs("by", by.abs());
        if (milliseconds == 0) {
            throw new RequestInvalid("bad-time", "a move by 0 moves nothing: give another time");
        }
        if (milliseconds > HORIZON.toMillis()) {
            throw new RequestInvalid("beyond-horizon", "a move is at most 400 days: give a shorter one");
        }
        return bulk(selection, header("postdate-action", "reschedule"),
            header("postdate-by", Long.toString(by.isNegative() ? -milliseconds : milliseconds)));
    }

    /** Returns the records, one for each partition, that deliver every selected message now. */
    public List<ProducerRecord<byte[], byte[]>> deliverSelected(Selection selection) {
        return bulk(selection, header("postdate-action", "reschedule"), header("postdate-delay", "0"));
    }

    /**
     * Returns the record by which a consumer returns a message, to be delivered again to its topic later.
     *
     * @param consumed as the consumer got it, with all its headers
     * @param policy text ({@code base=1s, attempts=5}) or the name of a policy of the request topic
     * @param error the reason, for the next consumer; null: none
     */
    public ProducerRecord<byte[], byte[]> retry(ConsumerRecord<byte[], byte[]> consumed, String policy, String error) {
        Policy.check(policy);
        var headers = new ArrayList<Header>();
        for (Header header : consumed.headers()) {
            if (!isOurs(header.key()) || COUNTED.contains(header.key())) {
                headers.add(header);
            } else if (!isAdded(header.key())) {
                throw reserved(header.key());
            }
        }
        checkTarget(consumed.topic());
        headers.add(header("postdate-topic", consumed.topic()));
        headers.add(header("postdate-retry", policy));
        if (error != null) {
            headers.add(header("postdate-error", error));
        }
        byte[] key = consumed.key();
        return record(key == null ? null : partitionFor(key, partitions), key, consumed.value(), headers);
    }

    /** Returns the one partition of all requests that name this id. */
    public int partitionOf(String id) {
        return partitionFor(id.getBytes(UTF_8), partitions);
    }

    /** Returns the partition that the default partitioner of this client chooses for a key. */
    public static int partitionFor(byte[] key, int partitions) {
        return Utils.toPositive(Utils.murmur2(key)) % partitions;
    }

    /** What {@link Message} and {@link Recurring} have in common; {@link #record} builds the request. For one thread. */
    public abstract sealed class Draft<T extends Draft<T>> permits Message, Recurring {
        private final String target;
        private final byte[] value;
        private final List<Header> headers = new ArrayList<>();
        private byte[] key;
        Duration grace;
        Duration window;
        private Integer targetPartition;

        private Draft(String target, byte[] value) {
            this.target = target;
            this.value = value;
        }

        abstract T self();

        /** Sets the key with which the message arrives. */
        public T key(byte[] key) {
            this.key = key;
            return self();
        }

        /** Sets how late it may be: later, a message becomes a dead letter, and an occurrence is skipped. */
        public T grace(Duration grace) {
            this.grace = grace;
            return self();
        }

        /** Sets the time after the due time within which it leaves. */
        public T window(Duration window) {
            this.window = window;
            return self();
        }

        /** Sets the partition of the target. */
        public T targetPartition(int partition) {
            this.targetPartition = partition;
            return self();
        }

        /** Adds headers of the message. Those of a delivered record may be given: what Postdate added is left out. */
        public T headers(Iterable<Header> more) {
            more.forEach(headers::add);
            return self();
        }

        /** Returns the request. Throws RequestInvalid: Postdate would refuse it. */
        public abstract ProducerRecord<byte[], byte[]> record();

        List<Header> begin() {
            var all = messageHeaders(headers);
            checkTarget(target);
            all.add(header("postdate-topic", target));
            return all;
        }

        ProducerRecord<byte[], byte[]> finish(String id, List<Header> all) {
            if (targetPartition != null) {
                if (targetPartition < 0) {
                    throw new RequestInvalid("bad-partition", "partition " + targetPartition + " is negative");
                }
                all.add(header("postdate-partition", targetPartition.toString()));
            }
            if (id == null) {
                return Postdate.this.record(key == null ? null : partitionFor(key, partitions), key, value, all);
            }
            byte[] named = idBytes(id);
            all.add(new RecordHeader("postdate-id", named));
            all.add(new RecordHeader("postdate-key", key));
            return Postdate.this.record(partitionFor(named, partitions), named, value, all);
        }
    }

    /** A message to schedule. */
    public final class Message extends Draft<Message> {
        private final When when;
        private String id;
        private boolean isEven;
        private IfPending ifPending;
        private boolean dropsIfEnded;
        private Duration latest;

        private Message(String target, byte[] value, When when) {
            super(target, value);
            this.when = when;
        }

        @Override
        Message self() {
            return this;
        }

        /** Sets your name for the message while it is pending; scheduling it again replaces the message. */
        public Message id(String id) {
            this.id = Objects.requireNonNull(id, "leave id out instead of null");
            return this;
        }

        /** Chooses the emptiest moment of the window that the sidecar knows. */
        public Message spreadEvenly() {
            this.isEven = true;
            return this;
        }

        /** Decides between this message and the pending one of its id. */
        public Message ifPending(IfPending ifPending) {
            this.ifPending = ifPending;
            return this;
        }

        /** Ends the request if a message of its id, requested with this too, was delivered lately. */
        public Message dropIfEnded() {
            this.dropsIfEnded = true;
            return this;
        }

        /** Bounds the due time of messages that replace one another: this long after the first request. */
        public Message latest(Duration latest) {
            this.latest = latest;
            return this;
        }

        @Override
        public ProducerRecord<byte[], byte[]> record() {
            var all = begin();
            all.add(timeHeader(when));
            addLength(all, "postdate-grace", grace, Long.MAX_VALUE, null);
            long windowMs = addLength(all, "postdate-window", window, WINDOW_MS_MAX, "bad-window");
            if (windowMs + when.delayMs() > HORIZON.toMillis()) {
                throw new RequestInvalid(
                    "beyond-horizon", "due, with its window, later than 400 days from now: shorten one");
            }
            if (isEven) {
                if (window == null) {
                    throw new RequestInvalid("bad-spread", "spreadEvenly needs a window");
                }
                all.add(header("postdate-spread", "even"));
            }
            if (id == null && (ifPending != null || dropsIfEnded || latest != null)) {
                throw new RequestInvalid("missing-id", "ifPending, dropIfEnded and latest need an id");
            }
            addChoice(all, "postdate-if-pending", ifPending);
            if (dropsIfEnded) {
                all.add(header("postdate-if-ended", "drop"));
            }
            if (ifPending == IfPending.KEEP && latest != null) {
                throw new RequestInvalid(
                    "bad-latest", "a request that keeps the pending message takes no latest: leave it out");
            }
            addLength(all, "postdate-latest", latest, WINDOW_MS_MAX, "bad-latest");
            return finish(id, all);
        }
    }

    /** A message to deliver again and again. */
    public final class Recurring extends Draft<Recurring> {
        private final String id;
        private final Recurrence times;
        private Instant start;
        private Instant end;
        private Long count;
        private Missed missed;
        private Duration catchUp;

        private Recurring(String target, byte[] value, String id, Recurrence times) {
            super(target, value);
            this.id = Objects.requireNonNull(id, "a schedule needs an id, by which it is replaced and cancelled");
            this.times = times;
        }

        @Override
        Recurring self() {
            return this;
        }

        /** Sets the first instant that may be a nominal time; by default, it is after the request. */
        public Recurring start(Instant start) {
            this.start = start;
            return this;
        }

        /** Sets the last instant that may be a nominal time. */
        public Recurring end(Instant end) {
            this.end = end;
            return this;
        }

        /** Sets the number of the last occurrence. */
        public Recurring count(long count) {
            this.count = count;
            return this;
        }

        /** Decides which late occurrences are delivered; by default {@link Missed#ALL}. */
        public Recurring missed(Missed missed) {
            this.missed = missed;
            return this;
        }

        /** Skips occurrences that are later than this. */
        public Recurring catchUp(Duration catchUp) {
            this.catchUp = catchUp;
            return this;
        }

        @Override
        public ProducerRecord<byte[], byte[]> record() {
            var all = begin();
            if (times instanceof Cron cron) {
                all.add(header("postdate-cron", cron.expression));
                if (cron.zone != null) {
                    all.add(header("postdate-zone", cron.zone));
                }
                addChoice(all, "postdate-gap", cron.gap);
                addChoice(all, "postdate-fold", cron.fold);
            } else if (times instanceof Every every) {
                String phase = every.phase == null ? "" : "/" + ceilMs("phase", every.phase);
                all.add(header("postdate-every", ceilMs("interval", every.interval) + phase));
            }
            addChoice(all, "postdate-missed", missed);
            addBounds(all);
            addLength(all, "postdate-catch-up", catchUp, Long.MAX_VALUE, null);
            addLength(all, "postdate-window", window, WINDOW_MS_MAX, "bad-schedule");
            addLength(all, "postdate-grace", grace, Long.MAX_VALUE, null);
            return finish(id, all);
        }

        private void addBounds(List<Header> all) {
            if (end != null && end.isBefore(start == null ? Instant.now() : start)) {
                throw badSchedule("the end lies before the start, or in the past: give a later one");
            }
            if (start != null && !start.isBefore(NOMINAL_END) || end != null && !end.isBefore(NOMINAL_END)) {
                throw badSchedule("the start or the end lies after the year 9997: give an earlier one, or leave it out");
            }
            addInstant(all, "postdate-start", start);
            addInstant(all, "postdate-end", end);
            if (count != null) {
                if (count < 1) {
                    throw badSchedule("the count is " + count + ": give 1 or more, or leave it out");
                }
                all.add(header("postdate-count", count.toString()));
            }
        }
    }

    private ProducerRecord<byte[], byte[]> control(String action, Named named, When when, Duration grace) {
        var times = new ArrayList<Header>();
        if (when != null) {
            times.add(timeHeader(when));
        }
        if (grace != null) {
            times.add(header("postdate-grace", Long.toString(ceilMs("grace", grace))));
        }
        return control(action, named, times);
    }

    private ProducerRecord<byte[], byte[]> control(String action, Named named, List<Header> times) {
        if (named == null || named.text == null) {
            throw new RequestInvalid("missing-id", "give Postdate.id(...) or Postdate.origin(...)");
        }
        var headers = new ArrayList<Header>();
        headers.add(header("postdate-action", action));
        headers.addAll(times);
        headers.add(header(named.header, named.text));
        if (named.header.equals("postdate-id")) {
            byte[] id = idBytes(named.text);
            return record(partitionFor(id, partitions), id, null, headers);
        }
        return record(partitionOfOrigin(named.text), null, null, headers);
    }

    private List<ProducerRecord<byte[], byte[]>> bulk(Selection selection, Header... own) {
        var headers = new ArrayList<Header>(List.of(own));
        if (selection.target != null) {
            if (!isTopic(selection.target)) {
                throw badSelection("the target is not the name of a Kafka topic: use letters, digits, . _ -");
            }
            headers.add(header("postdate-select-topic", selection.target));
        }
        if (selection.idPrefix != null) {
            byte[] prefix = selection.idPrefix.getBytes(UTF_8);
            if (prefix.length < 1 || prefix.length > ID_BYTES_MAX) {
                throw badSelection("a prefix of ids has 1 to 256 bytes, this one " + prefix.length);
            }
            headers.add(new RecordHeader("postdate-select-id", prefix));
        }
        if (selection.key != null) {
            if (selection.key.length > SELECTED_KEY_BYTES_MAX) {
                throw badSelection("a selected key has at most 4096 bytes: select by something else");
            }
            headers.add(new RecordHeader("postdate-select-key", selection.key));
        }
        addInstant(headers, "postdate-select-from", selection.from);
        addInstant(headers, "postdate-select-until", selection.until);
        if (selection.from != null && selection.until != null && !selection.from.isBefore(selection.until)) {
            throw badSelection("from must lie before until");
        }
        if (headers.size() == own.length) {
            throw badSelection("give target, idPrefix, key, from or until");
        }
        var records = new ArrayList<ProducerRecord<byte[], byte[]>>();
        for (int partition = 0; partition < partitions; partition++) {
            records.add(record(partition, null, null, headers));
        }
        return records;
    }

    private int partitionOfOrigin(String text) {
        Origin origin;
        try {
            origin = Origin.parse(text);
        } catch (FormatException error) {
            throw new RequestInvalid("bad-id", error.getMessage());
        }
        if (!origin.topic.equals(name) || origin.partition >= partitions) {
            throw new RequestInvalid("bad-id", "the origin names partition " + origin.partition + " of " + origin.topic
                + ", and " + name + " was given as having " + partitions + ": ask the cluster for their number");
        }
        return origin.partition;
    }

    private ProducerRecord<byte[], byte[]> record(Integer partition, byte[] key, byte[] value, List<Header> headers) {
        return new ProducerRecord<>(name, partition, key, value, headers);
    }

    private void checkTarget(String target) {
        if (target == null || !isTopic(target)) {
            throw new RequestInvalid("bad-target", "the target is not the name of a Kafka topic: use letters, digits, . _ -");
        }
        if (target.startsWith("__") || own.contains(target)) {
            throw new RequestInvalid("forbidden-target", target + " can never be a target: name a topic of yours");
        }
    }

    private static List<Header> messageHeaders(List<Header> headers) {
        boolean isDelivered = headers.stream().anyMatch(header -> header.key().equals("postdate-origin"));
        var kept = new ArrayList<Header>();
        for (Header header : headers) {
            if (!isOurs(header.key())) {
                kept.add(header);
            } else if (!isAdded(header.key()) || header.key().equals("postdate-id") && !isDelivered) {
                throw reserved(header.key());
            }
        }
        return kept;
    }

    private static Header timeHeader(When when) {
        if (when.delayMs() > HORIZON.toMillis()) {
            throw new RequestInvalid("beyond-horizon", "due later than 400 days from now: give an earlier time");
        }
        return header(when.header, Long.toString(when.number));
    }

    /** Adds the header unless the length is null. Refuses 0 and more than the longest, if there is a reason for it. */
    private static long addLength(List<Header> all, String name, Duration length, long longestMs, String reason) {
        if (length == null) {
            return 0;
        }
        long milliseconds = ceilMs(name, length);
        if (reason != null && (milliseconds == 0 || milliseconds > longestMs)) {
            throw new RequestInvalid(reason, name + " is 0 or longer than 17 years: leave it out, or give another one");
        }
        all.add(header(name, Long.toString(milliseconds)));
        return milliseconds;
    }

    private static void addInstant(List<Header> all, String name, Instant instant) {
        if (instant != null) {
            all.add(header(name, Long.toString(at(instant).number)));
        }
    }

    private static void addChoice(List<Header> all, String name, Enum<?> choice) {
        if (choice != null) {
            all.add(header(name, choice.name().toLowerCase(Locale.ROOT)));
        }
    }

    private static RequestInvalid badSchedule(String detail) {
        return new RequestInvalid("bad-schedule", detail);
    }

    private static RequestInvalid badSelection(String detail) {
        return new RequestInvalid("bad-selection", detail);
    }

    private static RequestInvalid reserved(String name) {
        return new RequestInvalid("unknown-header", "header " + name + " is Postdate's: set it with an argument");
    }

    private static boolean isOurs(String name) {
        return name.regionMatches(true, 0, "postdate-", 0, 9);
    }

    private static boolean isAdded(String name) {
        return COUNTED.contains(name) || ADDED.contains(name) || name.startsWith("postdate-dead-");
    }

    private static boolean isTopic(String name) {
        return TOPIC.matcher(name).matches() && !name.equals(".") && !name.equals("..");
    }

    private static boolean isAscii(String text) {
        return text.chars().allMatch(character -> character < 128);
    }

    private static byte[] idBytes(String id) {
        byte[] bytes = id.getBytes(UTF_8);
        if (bytes.length < 1 || bytes.length > ID_BYTES_MAX) {
            throw new RequestInvalid("bad-id", "an id has 1 to 256 bytes, this one " + bytes.length);
        }
        return bytes;
    }

    private static long ceilMs(String name, Duration length) {
        if (length.isNegative()) {
            throw new RequestInvalid("bad-time", name + " " + length + " is negative");
        }
        return length.plusNanos(999_999).toMillis();
    }

    private static Header header(String name, String text) {
        return new RecordHeader(name, text.getBytes(UTF_8));
    }

    /** The name of a request: its topic, partition and offset. */
    public record Origin(String topic, int partition, long offset) {
        private static final Pattern TEXT = Pattern.compile("([^/]+)/(0|[1-9][0-9]{0,9})/(0|[1-9][0-9]{0,18})");

        /** Returns the origin that a text names. Throws FormatException: it is not an origin. */
        public static Origin parse(String text) {
            var match = TEXT.matcher(text);
            if (match.matches() && isTopic(match.group(1))) {
                try {
                    return new Origin(match.group(1), Integer.parseInt(match.group(2)), Long.parseLong(match.group(3)));
                } catch (NumberFormatException tooLarge) {
                    throw new FormatException("an origin names a partition or an offset that cannot exist");
                }
            }
            throw new FormatException("not an origin, which is <request topic>/<partition>/<offset>");
        }

        /** Returns the text that headers and verdicts contain. */
        @Override
        public String toString() {
            return topic + "/" + partition + "/" + offset;
        }
    }

    /**
     * What Postdate adds to a delivered record, and the headers of the message.
     *
     * {@code id}: null without one. {@code attempt}, {@code firstOrigin} and {@code firstDue}: null unless the message
     * was returned before. {@code error}: the reason of the return, null if none was given. {@code occurrence}: the
     * number of the occurrence of a recurring schedule, from 1, with {@code origin} unique for ever; null without one.
     * {@code next}: the nominal time of the next occurrence; null if this was the last one. {@code extra}: of an extra
     * delivery of a recurring schedule, which is no occurrence, the origin of the control that asked for it and the
     * number of the delivery, unique for ever; null without one.
     */
    public record Delivered(
        Origin origin, Instant due, String id, Integer attempt, Origin firstOrigin, Instant firstDue, String error,
        Long occurrence, Instant next, String extra, List<Header> headers) {
    }

    /** Reads the headers of a delivered record. Throws FormatException: Postdate did not deliver it. */
    public static Delivered readDelivered(Iterable<Header> headers) {
        var added = new HashMap<String, String>();
        var message = new ArrayList<Header>();
        for (Header header : headers) {
            if (header.value() != null && header.key().equals("postdate-error")) {
                added.put(header.key(), new String(header.value(), UTF_8)); // any bytes of a consumer
            } else if (isAdded(header.key())) {
                added.put(header.key(), header.value() == null ? "" : decode(header.value()));
            } else {
                message.add(header);
            }
        }
        if (!added.containsKey("postdate-origin") || !added.containsKey("postdate-due")) {
            throw new FormatException("the record has no postdate-origin and postdate-due: Postdate did not deliver it");
        }
        String attempt = added.get("postdate-attempt");
        String first = added.get("postdate-first-origin");
        String occurrence = added.get("postdate-occurrence");
        return new Delivered(
            Origin.parse(added.get("postdate-origin")),
            instant(added.get("postdate-due")),
            added.get("postdate-id"),
            attempt == null ? null : (int) Math.min(natural(attempt), Integer.MAX_VALUE),
            first == null ? null : Origin.parse(first),
            instant(added.get("postdate-first-due")),
            added.get("postdate-error"),
            occurrence == null ? null : natural(occurrence),
            instant(added.get("postdate-next")),
            extra(added.get("postdate-extra")),
            message);
    }

    private static String extra(String text) {
        if (text != null) {
            int slash = Math.max(text.lastIndexOf('/'), 0);
            Origin.parse(text.substring(0, slash));
            natural(text.substring(slash + 1));
        }
        return text;
    }

    private static Instant instant(String text) {
        return text == null ? null : Instant.ofEpochMilli(natural(text));
    }

    /** The meaning of a verdict; {@code text} is its word in the record. */
    public enum Verdict {
        ACCEPTED, REJECTED, CANCELLED, RESCHEDULED, REPLACED, DELIVERED, DEAD, NOT_FOUND, TOO_LATE, KEPT, DROPPED, APPLIED,
        PAUSED, RESUMED, TRIGGERED, BACKFILLED;

        private final String text = name().toLowerCase(Locale.ROOT).replace('_', '-');

        /** Returns the word that verdicts contain. */
        public String text() {
            return text;
        }
    }

    /**
     * One verdict: the answer to the request {@code origin}.
     *
     * {@code id}: that the request names, or null. {@code of}: the request that was acted on, or null. {@code by}: the
     * request of the same id that survived this one, or null. {@code count}: of APPLIED, the number of messages on which a
     * bulk control has acted; otherwise null. {@code at}: the clock of the writer.
     */
    public record VerdictRecord(Origin origin, String id, Verdict verdict, Origin of, Origin by, Long count, Instant at) {
    }

    /** Returns the verdict in the value of a record on the verdicts topic. Throws FormatException: it contains none. */
    public static VerdictRecord readVerdict(byte[] value) {
        if (value == null || value.length > Json.BYTES_MAX) {
            throw new FormatException("the record has no value, or a larger one than a verdict has");
        }
        if (!(new Json(decode(value)).read() instanceof Map<?, ?> fields)) {
            throw new FormatException("a verdict is a JSON object");
        }
        if (!(fields.get("v") instanceof Json.Number version) || !version.text().matches("[123]")) {
            throw new FormatException("a verdict has a version other than 1 to 3: use a newer client");
        }
        if (!(fields.get("at") instanceof Json.Number at)) {
            throw new FormatException("a verdict has no time in its field at");
        }
        String word = text(fields, "verdict");
        for (Verdict verdict : Verdict.values()) {
            if (verdict.text().equals(word)) {
                return answer(fields, verdict, version.text(), Instant.ofEpochMilli(natural(at.text())));
            }
        }
        throw new FormatException("a verdict has a word that this client does not know: use a newer client");
    }

    private static VerdictRecord answer(Map<?, ?> fields, Verdict verdict, String version, Instant at) {
        boolean isApplied = verdict == Verdict.APPLIED;
        boolean isSurvived = verdict == Verdict.KEPT || verdict == Verdict.DROPPED;
        boolean isOfSchedule = verdict.compareTo(Verdict.PAUSED) >= 0;
        String expected = isApplied || isSurvived ? "2" : isOfSchedule ? "3" : "1";
        if (!version.equals(expected) || isApplied != fields.containsKey("count")) {
            throw new FormatException("a verdict has the version or the count of another one");
        }
        Long count = null;
        if (isApplied) {
            if (!(fields.get("count") instanceof Json.Number number)) {
                throw new FormatException("a verdict has a count that is not a number");
            }
            count = natural(number.text());
        }
        String origin = text(fields, "origin");
        String of = text(fields, "of");
        String by = text(fields, "by");
        if (isSurvived && by == null) {
            throw new FormatException("a verdict " + verdict.text() + " names no request that survived");
        }
        return new VerdictRecord(
            Origin.parse(origin == null ? "" : origin), text(fields, "id"), verdict,
            of == null ? null : Origin.parse(of), by == null ? null : Origin.parse(by), count, at);
    }

    private static String text(Map<?, ?> fields, String field) {
        Object found = fields.get(field);
        if (found != null && !(found instanceof String)) {
            throw new FormatException("a verdict has a field " + field + " that is not a text");
        }
        return (String) found;
    }

    private static long natural(String text) {
        try {
            if (text.matches("[0-9]{1,19}")) {
                return Long.parseLong(text);
            }
        } catch (NumberFormatException tooLarge) {
            throw new FormatException("a number is larger than Postdate writes");
        }
        throw new FormatException("not a whole number of 0 or more");
    }

    private static String decode(byte[] bytes) {
        try {
            return UTF_8.newDecoder().decode(ByteBuffer.wrap(bytes)).toString();
        } catch (CharacterCodingException error) {
            throw new FormatException("a text is not UTF-8");
        }
    }

    /** Checks cron expressions by their fields, as the sidecar reads them. */
    private record CronFields(String name, int low, int high, List<String> names, String special) {
        private static final Pattern MACRO = Pattern.compile("@(HOURLY|DAILY|MIDNIGHT|WEEKLY|MONTHLY|YEARLY|ANNUALLY)");
        private static final Pattern TERM =
            Pattern.compile("(?:\\*|([0-9]{1,2}|[A-Z]{3})(?:-([0-9]{1,2}|[A-Z]{3}))?)(?:/([0-9]{1,2}))?");
        private static final List<String> MONTHS =
            List.of("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC");
        private static final List<String> WEEKDAYS = List.of("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT");
        private static final List<CronFields> ALL = List.of(
            new CronFields("second", 0, 59, List.of(), ""),
            new CronFields("minute", 0, 59, List.of(), ""),
            new CronFields("hour", 0, 23, List.of(), ""),
            new CronFields("day of month", 1, 31, List.of(), "LW?"),
            new CronFields("month", 1, 12, MONTHS, ""),
            new CronFields("day of week", 0, 7, WEEKDAYS, "[0-7]L|([0-7]|SUN|MON|TUE|WED|THU|FRI|SAT)#[1-5]"));

        static void check(String expression) {
            String upper = expression.toUpperCase(Locale.ROOT);
            String[] fields = upper.split(" ", -1);
            boolean isReadable = expression.length() <= CRON_LENGTH_MAX && isAscii(expression);
            if (isReadable && (fields.length == 5 || fields.length == 6)) {
                for (int i = 0; i < fields.length; i++) {
                    for (String term : fields[i].split(",", -1)) {
                        ALL.get(i + 6 - fields.length).checkTerm(term);
                    }
                }
            } else if (!MACRO.matcher(upper).matches()) {
                throw badSchedule(
                    "a cron expression has 5 fields, or 6 with seconds first, separated by single spaces, such as "
                        + "30 9 * * MON-FRI; @hourly, @daily, @weekly, @monthly and @yearly are others");
            }
        }

        private void checkTerm(String term) {
            var match = TERM.matcher(term);
            if (!special.isEmpty() && term.matches(special)) {
                return;
            }
            if (match.matches()) {
                int first = value(match.group(1), low);
                int last = value(match.group(2), first);
                int step = match.group(3) == null ? 1 : Integer.parseInt(match.group(3));
                if (low <= first && first <= last && last <= high && 0 < step && step <= high) {
                    return;
                }
            }
            throw badSchedule("cron expression: " + term + " is no " + name + ": give *, " + low + " to " + high
                + ", an ascending range such as " + low + "-" + high + ", or a step such as */2");
        }

        /** Returns the number of a value or of a name; -1 for any other text. */
        private int value(String text, int absent) {
            if (text == null) {
                return absent;
            }
            if (Character.isDigit(text.charAt(0))) {
                return high < 10 && text.length() > 1 ? -1 : Integer.parseInt(text); // weekdays have one digit
            }
            return names.contains(text) ? names.indexOf(text) + low : -1;
        }
    }

    /** Checks retry policies, as the sidecar reads them. */
    private static final class Policy {
        private static final String REMEDY = "give a policy such as base=1s, factor=2, max=1h, attempts=12, jitter=20%, or"
            + " the name of one, of at most 256 ASCII characters";
        private static final Pattern NAME = Pattern.compile(" *[A-Za-z0-9._-]{1,64} *");
        private static final Pattern PART = Pattern.compile(" *([a-z]+) *= *(.*?) *");
        private static final String NUMBER = "([0-9]+(?:\\.[0-9]+)?)";
        private static final List<Pattern> LENGTHS = List.of(
            Pattern.compile("(?=.)(?:#d)?(?:#h)?(?:#m)?(?:#s)?(?:#ms)?".replace("#", NUMBER)),
            Pattern.compile("P(?=[0-9T])(?:#D)?(?:T(?=[0-9])(?:#H)?(?:#M)?(?:#S)?)?".replace("#", NUMBER)));
        private static final Pattern WEEKS = Pattern.compile("P#W".replace("#", NUMBER));
        /** So that 1.1h, which no double is, rounds up to no more than 3960000 ms. */
        private static final double ROUNDING_ERROR = 1 - 1e-12;
        private static final double[] UNITS_MS = {86_400_000, 3_600_000, 60_000, 1_000, 1};

        static void check(String policy) {
            if (policy == null || policy.length() > POLICY_LENGTH_MAX || !isAscii(policy)) {
                throw new RequestInvalid("bad-retry", REMEDY);
            }
            if (NAME.matcher(policy).matches()) {
                return;
            }
            var parts = new HashMap<String, String>();
            for (String part : policy.split(",", -1)) {
                var match = PART.matcher(part);
                if (!match.matches() || !isPart(match.group(1), match.group(2))
                    || parts.put(match.group(1), match.group(2)) != null) {
                    throw new RequestInvalid(
                        "bad-retry", "\"" + part + "\" is no part of a policy, or is repeated: " + REMEDY);
                }
            }
            double base = parts.containsKey("base") ? lengthMs(parts.get("base")) : -1;
            if (base <= 0 || base > lengthMs(parts.getOrDefault("max", "1h"))) {
                throw new RequestInvalid(
                    "bad-retry", "a policy needs a base, at most its max, which is 1h unless given: " + REMEDY);
            }
        }

        private static boolean isPart(String name, String value) {
            return switch (name) {
                case "base" -> lengthMs(value) > 0;
                case "max" -> lengthMs(value) >= 0 && lengthMs(value) <= HORIZON.toMillis();
                case "factor" -> value.matches("[0-9]{1,3}(\\.[0-9]{1,2})?")
                    && Double.parseDouble(value) >= 1 && Double.parseDouble(value) <= 100;
                case "attempts" -> value.matches("[0-9]{1,4}")
                    && Integer.parseInt(value) >= 1 && Integer.parseInt(value) <= 1_000;
                case "jitter" -> value.matches("[0-9]{1,3}%") && Integer.parseInt(value.replace("%", "")) <= 100;
                default -> false;
            };
        }

        /** Returns the milliseconds of a duration such as 1500, 90s, 2h30m or PT5M; -1: it is none. */
        private static double lengthMs(String text) {
            if (text.matches("[0-9]{1,19}")) {
                return Double.parseDouble(text);
            }
            var weeks = WEEKS.matcher(text);
            if (weeks.matches()) {
                return Double.parseDouble(weeks.group(1)) * 7 * UNITS_MS[0];
            }
            for (Pattern form : LENGTHS) {
                var match = form.matcher(text);
                if (match.matches()) {
                    double sum = 0;
                    boolean isFraction = false;
                    for (int i = 1; i <= match.groupCount(); i++) {
                        String number = match.group(i);
                        if (number != null) {
                            if (isFraction) {
                                return -1; // only the last number may have one
                            }
                            isFraction = number.contains(".");
                            sum += Double.parseDouble(number) * UNITS_MS[i - 1];
                        }
                    }
                    return Math.ceil(sum * ROUNDING_ERROR);
                }
            }
            return -1;
        }
    }

    /** Reads JSON into Map, List, String, Number, Boolean and null. The text has at most BYTES_MAX characters. */
    private static final class Json {
        static final int BYTES_MAX = 8 * 1024;
        private static final int DEPTH_MAX = 100;
        private static final Pattern NUMBER = Pattern.compile("-?(0|[1-9][0-9]*)(\\.[0-9]+)?([eE][+-]?[0-9]+)?");

        private final String text;
        private int next;
        private int depth;

        record Number(String text) {
        }

        Json(String text) {
            this.text = text;
        }

        Object read() {
            Object value = value();
            skipSpace();
            if (next < text.length()) {
                throw malformed();
            }
            return value;
        }

        private Object value() {
            skipSpace();
            if (next == text.length() || depth == DEPTH_MAX) {
                throw malformed();
            }
            depth++;
            Object value = switch (text.charAt(next)) {
                case '{' -> object();
                case '[' -> array();
                case '"' -> string();
                case 't' -> word("true", true);
                case 'f' -> word("false", false);
                case 'n' -> word("null", null);
                default -> number();
            };
            depth--;
            return value;
        }

        private Map<String, Object> object() {
            var fields = new HashMap<String, Object>();
            next++;
            if (!accept('}')) {
                do {
                    skipSpace();
                    String name = string();
                    expect(':');
                    fields.put(name, value());
                } while (accept(','));
                expect('}');
            }
            return fields;
        }

        private List<Object> array() {
            var values = new ArrayList<Object>();
            next++;
            if (!accept(']')) {
                do {
                    values.add(value());
                } while (accept(','));
                expect(']');
            }
            return values;
        }

        private String string() {
            expect('"');
            var read = new StringBuilder();
            for (char character = take(); character != '"'; character = take()) {
                if (character < ' ') {
                    throw malformed();
                }
                read.append(character == '\\' ? escaped() : character);
            }
            return read.toString();
        }

        private char escaped() {
            char character = take();
            int simple = "\"\\/bfnrt".indexOf(character);
            if (simple >= 0) {
                return "\"\\/\b\f\n\r\t".charAt(simple);
            }
            if (character != 'u' || next + 4 > text.length() || !text.substring(next, next + 4).matches("[0-9a-fA-F]{4}")) {
                throw malformed();
            }
            next += 4;
            return (char) Integer.parseInt(text.substring(next - 4, next), 16);
        }

        private Object word(String word, Object value) {
            if (!text.startsWith(word, next)) {
                throw malformed();
            }
            next += word.length();
            return value;
        }

        private Number number() {
            var match = NUMBER.matcher(text).region(next, text.length());
            if (!match.lookingAt()) {
                throw malformed();
            }
            next = match.end();
            return new Number(match.group());
        }

        private void skipSpace() {
            while (next < text.length() && " \t\r\n".indexOf(text.charAt(next)) >= 0) {
                next++;
            }
        }

        private boolean accept(char wanted) {
            skipSpace();
            if (next < text.length() && text.charAt(next) == wanted) {
                next++;
                return true;
            }
            return false;
        }

        private void expect(char wanted) {
            if (!accept(wanted)) {
                throw malformed();
            }
        }

        private char take() {
            if (next == text.length()) {
                throw malformed();
            }
            return text.charAt(next++);
        }

        private FormatException malformed() {
            return new FormatException("a verdict is not JSON, at character " + next);
        }
    }
}
