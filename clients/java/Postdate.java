package postdate;

import static java.nio.charset.StandardCharsets.UTF_8;

import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
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
 * }</pre>
 *
 * Each record names its partition, so the partitioner of the producer does not matter. The producer needs
 * {@code ByteArraySerializer} for key and value. Opens no connection; immutable, for any thread.
 */
public final class Postdate {
    private static final Duration HORIZON = Duration.ofDays(400);
    private static final int ID_BYTES_MAX = 256;
    private static final int POLICY_BYTES_MAX = 256;
    private static final Pattern TOPIC = Pattern.compile("[a-zA-Z0-9._-]{1,249}");
    /** From these the attempts of a return count. */
    private static final Set<String> COUNTED = Set.of(
        "postdate-origin", "postdate-due", "postdate-id", "postdate-attempt", "postdate-first-origin",
        "postdate-first-due");

    private final String name;
    private final int partitions;
    private final Set<String> own;

    /**
     * Describes a request topic.
     *
     * @param name of the request topic
     * @param partitions that the live topic has: ask the cluster
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

    /** Starts a request that delivers {@code value} to {@code target}; a null value is delivered as null. */
    public Message schedule(String target, byte[] value, When when) {
        return new Message(target, value, Objects.requireNonNull(when, "give at, after or level"));
    }

    /** Returns the record that ends a pending message. Its verdict tells whether it was in time. */
    public ProducerRecord<byte[], byte[]> cancel(Named named) {
        return control("cancel", named, null, null);
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
     * Returns the record by which a consumer gives a message back, to be delivered again to its topic later.
     *
     * @param consumed as the consumer got it, with all its headers
     * @param policy text ({@code base=1s, attempts=5}) or the name of a policy of the request topic
     * @param error why it comes back, for the next consumer; null: not told
     */
    public ProducerRecord<byte[], byte[]> retry(ConsumerRecord<byte[], byte[]> consumed, String policy, String error) {
        if (policy == null || policy.isBlank() || policy.length() > POLICY_BYTES_MAX || !isAscii(policy)) {
            throw new RequestInvalid(
                "bad-retry", "a policy is a text such as base=1s, attempts=5, or a name, of at most 256 ASCII characters");
        }
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

    /** A message to schedule; {@link #record} builds the request. For one thread. */
    public final class Message {
        private final String target;
        private final byte[] value;
        private final When when;
        private final List<Header> headers = new ArrayList<>();
        private byte[] key;
        private String id;
        private Duration grace;
        private Integer targetPartition;

        private Message(String target, byte[] value, When when) {
            this.target = target;
            this.value = value;
            this.when = when;
        }

        /** Sets the key with which the message arrives. */
        public Message key(byte[] key) {
            this.key = key;
            return this;
        }

        /** Sets your name for the message while it is pending; scheduling it again replaces the message. */
        public Message id(String id) {
            this.id = Objects.requireNonNull(id, "leave id out instead of null");
            return this;
        }

        /** Sets how late it may be: later, it becomes a dead letter. */
        public Message grace(Duration grace) {
            this.grace = grace;
            return this;
        }

        /** Sets the partition of the target. */
        public Message targetPartition(int partition) {
            this.targetPartition = partition;
            return this;
        }

        /** Adds headers of the message. Those of a delivered record may be given: what Postdate added is left out. */
        public Message headers(Iterable<Header> more) {
            more.forEach(headers::add);
            return this;
        }

        /** Returns the request. Throws RequestInvalid: Postdate would refuse it. */
        public ProducerRecord<byte[], byte[]> record() {
            var all = messageHeaders(headers);
            checkTarget(target);
            all.add(header("postdate-topic", target));
            all.add(timeHeader(when));
            if (grace != null) {
                all.add(header("postdate-grace", Long.toString(ceilMs("grace", grace))));
            }
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

    private ProducerRecord<byte[], byte[]> control(String action, Named named, When when, Duration grace) {
        if (named == null || named.text == null) {
            throw new RequestInvalid("missing-id", "give Postdate.id(...) or Postdate.origin(...)");
        }
        var headers = new ArrayList<Header>();
        headers.add(header("postdate-action", action));
        if (when != null) {
            headers.add(timeHeader(when));
        }
        if (grace != null) {
            headers.add(header("postdate-grace", Long.toString(ceilMs("grace", grace))));
        }
        headers.add(header(named.header, named.text));
        if (named.header.equals("postdate-id")) {
            byte[] id = idBytes(named.text);
            return record(partitionFor(id, partitions), id, null, headers);
        }
        return record(partitionOfOrigin(named.text), null, null, headers);
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
                + ", and " + name + " was said to have " + partitions + ": ask the cluster for their number");
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
        long delayMs = switch (when.header) {
            case "postdate-at" -> when.number - System.currentTimeMillis();
            case "postdate-delay" -> when.number;
            default -> 0;
        };
        if (delayMs > HORIZON.toMillis()) {
            throw new RequestInvalid("beyond-horizon", "due later than 400 days from now: give an earlier time");
        }
        return header(when.header, Long.toString(when.number));
    }

    private static RequestInvalid reserved(String name) {
        return new RequestInvalid("unknown-header", "header " + name + " is Postdate's: set it with an argument");
    }

    private static boolean isOurs(String name) {
        return name.regionMatches(true, 0, "postdate-", 0, 9);
    }

    private static boolean isAdded(String name) {
        return COUNTED.contains(name) || name.equals("postdate-moved") || name.equals("postdate-error")
            || name.startsWith("postdate-dead-");
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
     * was given back before. {@code error}: why it was given back, null if that was not told.
     */
    public record Delivered(
        Origin origin, Instant due, String id, Integer attempt, Origin firstOrigin, Instant firstDue, String error,
        List<Header> headers) {
    }

    /** Returns what the headers of a delivered record tell. Throws FormatException: Postdate did not deliver it. */
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
        String firstDue = added.get("postdate-first-due");
        return new Delivered(
            Origin.parse(added.get("postdate-origin")),
            Instant.ofEpochMilli(natural(added.get("postdate-due"))),
            added.get("postdate-id"),
            attempt == null ? null : (int) Math.min(natural(attempt), Integer.MAX_VALUE),
            first == null ? null : Origin.parse(first),
            firstDue == null ? null : Instant.ofEpochMilli(natural(firstDue)),
            added.get("postdate-error"),
            message);
    }

    /** What a verdict says; {@code text} is its word in the record. */
    public enum Verdict {
        ACCEPTED, REJECTED, CANCELLED, RESCHEDULED, REPLACED, DELIVERED, DEAD, NOT_FOUND, TOO_LATE;

        private final String text = name().toLowerCase(java.util.Locale.ROOT).replace('_', '-');

        /** Returns the word that verdicts contain. */
        public String text() {
            return text;
        }
    }

    /**
     * One verdict: the answer to the request {@code origin}.
     *
     * {@code id}: that the request names, or null. {@code of}: the request that was acted on, or null. {@code at}: the
     * clock of the writer.
     */
    public record Answer(Origin origin, String id, Verdict verdict, Origin of, Instant at) {
    }

    /** Returns the verdict in the value of a record on the verdicts topic. Throws FormatException: it contains none. */
    public static Answer readVerdict(byte[] value) {
        if (value == null || value.length > Json.BYTES_MAX) {
            throw new FormatException("the record has no value, or a larger one than a verdict has");
        }
        if (!(new Json(decode(value)).read() instanceof Map<?, ?> fields)) {
            throw new FormatException("a verdict is a JSON object");
        }
        if (!(fields.get("v") instanceof Json.Number version) || !version.text().equals("1")) {
            throw new FormatException("a verdict has a version other than 1: use a newer client");
        }
        if (!(fields.get("at") instanceof Json.Number at)) {
            throw new FormatException("a verdict has no time in its field at");
        }
        String word = text(fields, "verdict");
        for (Verdict verdict : Verdict.values()) {
            if (verdict.text().equals(word)) {
                String origin = text(fields, "origin");
                String of = text(fields, "of");
                return new Answer(
                    Origin.parse(origin == null ? "" : origin), text(fields, "id"), verdict,
                    of == null ? null : Origin.parse(of), Instant.ofEpochMilli(natural(at.text())));
            }
        }
        throw new FormatException("a verdict has a word that this client does not know: use a newer client");
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
