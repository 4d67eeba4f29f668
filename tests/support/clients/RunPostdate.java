import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.File;
import java.time.Duration;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import postdate.Postdate;

/**
 * Runs clients/java/Postdate.java. {@code conformance FILE} prints its result for each case as one line of JSON.
 * {@code live BROKER REQUESTS PARTITIONS TARGET} schedules three messages, cancels two, returns the third, repeats a
 * fourth, and prints the messages that it reads.
 */
public class RunPostdate {
    static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        if (arguments[0].equals("live")) {
            live(arguments[1], arguments[2], Integer.parseInt(arguments[3]), arguments[4]);
            return;
        }
        JsonNode file = JSON.readTree(new File(arguments[1]));
        for (JsonNode each : file.get("cases")) {
            if (!each.has("only") || each.get("only").toString().contains("\"java\"")) {
                System.out.println(JSON.writeValueAsString(result(file.get("requests").asText(), each)));
            }
        }
    }

    static ObjectNode result(String name, JsonNode one) {
        ObjectNode made = JSON.createObjectNode();
        JsonNode given = one.get("input");
        try {
            switch (one.get("call").asText()) {
                case "partition" ->
                    made.put("partition", Postdate.partitionFor(bytes(given.get("key")), given.get("partitions").asInt()));
                case "delivered" -> made.set("delivered", delivered(Postdate.readDelivered(headers(given))));
                case "verdict" -> made.set("answer", answer(Postdate.readVerdict(bytes(given.get("value")))));
                default -> {
                    var requests = new Postdate(name, given.get("partitions").asInt());
                    String call = one.get("call").asText();
                    if (call.endsWith("_selected")) {
                        ArrayNode records = JSON.createArrayNode();
                        bulk(requests, call, given).forEach(record -> records.add(record(record)));
                        made.set("records", records);
                    } else {
                        made.set("record", record(request(requests, call, given)));
                    }
                }
            }
        } catch (Postdate.RequestInvalid error) {
            made.put("error", error.reason());
        } catch (Postdate.FormatException error) {
            made.put("error", "format");
        }
        return made;
    }

    static ProducerRecord<byte[], byte[]> request(Postdate requests, String call, JsonNode given) {
        switch (call) {
            case "cancel":
                return requests.cancel(named(given));
            case "deliver":
                return requests.deliver(named(given));
            case "pause":
                return requests.pause(named(given));
            case "resume":
                return requests.resume(named(given));
            case "trigger":
                return requests.trigger(named(given));
            case "backfill":
                return requests.backfill(named(given), instant(given, "start_us"), instant(given, "end_us"));
            case "reschedule":
                return requests.reschedule(named(given), when(given), grace(given));
            case "retry":
                var consumed = new ConsumerRecord<>(
                    given.get("topic").asText(), 0, 0, 0, TimestampType.CREATE_TIME, -1, -1, bytes(given.get("key")),
                    bytes(given.get("value")), new RecordHeaders(headers(given)), Optional.empty());
                return requests.retry(consumed, given.get("policy").asText(), text(given, "error"));
            case "repeat":
                return recurring(requests, given).record();
            default:
                return message(requests, given).record();
        }
    }

    static Postdate.Message message(Postdate requests, JsonNode given) {
        var message = requests.schedule(given.get("target").asText(), bytes(given.get("value")), when(given));
        fill(message, given).ifPending(choice(Postdate.IfPending.class, given, "if_pending"));
        message.latest(given.has("latest_us") ? length(given, "latest_us") : null);
        if (given.has("id")) {
            message.id(given.get("id").asText());
        }
        if (given.has("spread")) {
            message.spreadEvenly();
        }
        return given.has("if_ended") ? message.dropIfEnded() : message;
    }

    static Postdate.Recurring recurring(Postdate requests, JsonNode given) {
        Postdate.Recurrence times;
        if (given.has("cron")) {
            times = Postdate.cron(given.get("cron").asText()).zone(text(given, "zone"))
                .gap(choice(Postdate.Gap.class, given, "gap")).fold(choice(Postdate.Fold.class, given, "fold"));
        } else {
            var every = Postdate.every(length(given, "every_us"));
            times = given.has("phase_us") ? every.phase(length(given, "phase_us")) : every;
        }
        var recurring = requests.repeat(
            given.get("target").asText(), bytes(given.get("value")), given.get("id").asText(), times);
        fill(recurring, given).start(instant(given, "start_us")).end(instant(given, "end_us"));
        recurring.missed(choice(Postdate.Missed.class, given, "missed"));
        recurring.catchUp(given.has("catch_up_us") ? length(given, "catch_up_us") : null);
        return given.has("count") ? recurring.count(given.get("count").asLong()) : recurring;
    }

    static <T extends Postdate.Draft<T>> T fill(T draft, JsonNode given) {
        draft.key(bytes(given.get("key"))).headers(headers(given)).grace(grace(given));
        if (given.has("target_partition")) {
            draft.targetPartition(given.get("target_partition").asInt());
        }
        return draft.window(given.has("window_us") ? length(given, "window_us") : null);
    }

    static List<ProducerRecord<byte[], byte[]>> bulk(Postdate requests, String call, JsonNode given) {
        var selection = Postdate.select().target(text(given, "target")).idPrefix(text(given, "id_prefix"))
            .key(given.has("key") ? bytes(given.get("key")) : null)
            .from(instant(given, "from_us")).until(instant(given, "until_us"));
        return switch (call) {
            case "cancel_selected" -> requests.cancelSelected(selection);
            case "deliver_selected" -> requests.deliverSelected(selection);
            default -> requests.rescheduleSelected(selection, length(given, "by_us"));
        };
    }

    static <T extends Enum<T>> T choice(Class<T> choices, JsonNode given, String name) {
        return given.has(name) ? Enum.valueOf(choices, given.get(name).asText().toUpperCase(Locale.ROOT)) : null;
    }

    static Instant instant(JsonNode given, String name) {
        return given.has(name) ? Instant.EPOCH.plus(given.get(name).asLong(), ChronoUnit.MICROS) : null;
    }

    static Postdate.Named named(JsonNode given) {
        if (given.has("id")) {
            return Postdate.id(given.get("id").asText());
        }
        return given.has("origin") ? Postdate.origin(given.get("origin").asText()) : null;
    }

    static Postdate.When when(JsonNode given) {
        if (given.has("at_us")) {
            return Postdate.at(instant(given, "at_us"));
        }
        return given.has("level") ? Postdate.level(given.get("level").asInt()) : Postdate.after(length(given, "delay_us"));
    }

    static Duration grace(JsonNode given) {
        return given.has("grace_us") ? length(given, "grace_us") : null;
    }

    static Duration length(JsonNode given, String name) {
        return Duration.of(given.get(name).asLong(), ChronoUnit.MICROS);
    }

    static byte[] bytes(JsonNode text) {
        return text.isNull() ? null : Base64.getDecoder().decode(text.asText());
    }

    static String text(JsonNode given, String name) {
        return given.has(name) ? given.get(name).asText() : null;
    }

    static List<Header> headers(JsonNode given) {
        var found = new ArrayList<Header>();
        for (JsonNode pair : given.path("headers")) {
            found.add(new RecordHeader(pair.get(0).asText(), bytes(pair.get(1))));
        }
        return found;
    }

    static ArrayNode pairs(Iterable<Header> headers) {
        ArrayNode pairs = JSON.createArrayNode();
        headers.forEach(header -> pairs.addArray().add(header.key()).add(base64(header.value())));
        return pairs;
    }

    static String base64(byte[] bytes) {
        return bytes == null ? null : Base64.getEncoder().encodeToString(bytes);
    }

    static String origin(Postdate.Origin origin) {
        return origin == null ? null : origin.toString();
    }

    static ObjectNode record(ProducerRecord<byte[], byte[]> record) {
        ObjectNode made = JSON.createObjectNode();
        made.put("partition", record.partition()).put("key", base64(record.key())).put("value", base64(record.value()));
        made.set("headers", pairs(record.headers()));
        return made;
    }

    static ObjectNode delivered(Postdate.Delivered read) {
        ObjectNode made = JSON.createObjectNode();
        made.put("origin", origin(read.origin())).put("due_ms", read.due().toEpochMilli()).put("id", read.id());
        made.put("attempt", read.attempt()).put("first_origin", origin(read.firstOrigin()));
        made.put("first_due_ms", read.firstDue() == null ? null : (Long) read.firstDue().toEpochMilli());
        made.put("occurrence", read.occurrence());
        made.put("next_ms", read.next() == null ? null : (Long) read.next().toEpochMilli());
        made.put("extra", read.extra());
        made.put("error", read.error()).set("headers", pairs(read.headers()));
        return made;
    }

    static ObjectNode answer(Postdate.VerdictRecord read) {
        ObjectNode made = JSON.createObjectNode();
        made.put("origin", origin(read.origin())).put("id", read.id()).put("verdict", read.verdict().text());
        made.put("of", origin(read.of())).put("by", origin(read.by())).put("count", read.count());
        return made.put("at_ms", read.at().toEpochMilli());
    }

    static void live(String broker, String name, int partitions, String target) throws Exception {
        var requests = new Postdate(name, partitions);
        Map<String, Object> producing = Map.of("bootstrap.servers", broker);
        Map<String, Object> consuming = Map.of(
            "bootstrap.servers", broker, "group.id", target, "isolation.level", "read_committed",
            "auto.offset.reset", "earliest");
        try (var producer = new KafkaProducer<>(producing, new ByteArraySerializer(), new ByteArraySerializer());
            var consumer = new KafkaConsumer<>(consuming, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            var later = Postdate.after(Duration.ofHours(1));
            producer.send(requests.schedule(target, "by id".getBytes(), later).id("java-1").record()).get();
            var sent = producer.send(requests.schedule(target, "by origin".getBytes(), later).record()).get();
            var kept = requests.schedule(target, "kept".getBytes(), Postdate.after(Duration.ofMillis(500)));
            producer.send(kept.id("java-2").key("java".getBytes()).record()).get();
            producer.send(requests.cancel(Postdate.id("java-1"))).get();
            producer.send(requests.cancel(Postdate.origin(name + "/" + sent.partition() + "/" + sent.offset()))).get();
            var every = Postdate.every(Duration.ofSeconds(1));
            var tick = requests.repeat(target, "tick".getBytes(), "java-3", every);
            producer.send(tick.key("java".getBytes()).count(2).record());

            consumer.subscribe(List.of(target, name + ".verdicts"));
            for (int read = 0; read < 6; ) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofSeconds(1))) {
                    if (record.topic().equals(target)) {
                        if (print(record, Postdate.readDelivered(record.headers()))) {
                            producer.send(requests.retry(record, "base=100ms, attempts=1", "busy"));
                        }
                    } else {
                        var answer = Postdate.readVerdict(record.value());
                        System.out.println(answer.verdict().text() + " " + answer.id());
                    }
                    read++;
                }
            }
        }
    }

    /** Prints a delivered record; returns true if it was neither returned before nor an occurrence. */
    static boolean print(ConsumerRecord<byte[], byte[]> record, Postdate.Delivered got) {
        System.out.printf(
            "%s %s %s %d \"%s\" %d %b%n", new String(record.value()), got.id(), new String(record.key()),
            got.attempt() == null ? 0 : got.attempt(), got.error() == null ? "" : got.error(),
            got.occurrence() == null ? 0 : got.occurrence(), got.next() != null);
        return got.attempt() == null && got.occurrence() == null;
    }
}
