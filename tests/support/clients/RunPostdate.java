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
 * Runs clients/java/Postdate.java: {@code conformance FILE} prints what it makes of each case, one JSON a line;
 * {@code live BROKER REQUESTS PARTITIONS TARGET} schedules three messages, cancels two, and prints what it reads.
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
                    made.set("record", record(request(requests, one.get("call").asText(), given)));
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
            case "reschedule":
                return requests.reschedule(named(given), when(given), grace(given));
            case "retry":
                var consumed = new ConsumerRecord<>(
                    given.get("topic").asText(), 0, 0, 0, TimestampType.CREATE_TIME, -1, -1, bytes(given.get("key")),
                    bytes(given.get("value")), new RecordHeaders(headers(given)), Optional.empty());
                return requests.retry(consumed, given.get("policy").asText(), text(given, "error"));
            default:
                var message = requests.schedule(given.get("target").asText(), bytes(given.get("value")), when(given));
                message.key(bytes(given.get("key"))).headers(headers(given)).grace(grace(given));
                if (given.has("id")) {
                    message.id(given.get("id").asText());
                }
                if (given.has("target_partition")) {
                    message.targetPartition(given.get("target_partition").asInt());
                }
                return message.record();
        }
    }

    static Postdate.Named named(JsonNode given) {
        if (given.has("id")) {
            return Postdate.id(given.get("id").asText());
        }
        return given.has("origin") ? Postdate.origin(given.get("origin").asText()) : null;
    }

    static Postdate.When when(JsonNode given) {
        if (given.has("at_us")) {
            return Postdate.at(Instant.EPOCH.plus(given.get("at_us").asLong(), ChronoUnit.MICROS));
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
        made.put("error", read.error()).set("headers", pairs(read.headers()));
        return made;
    }

    static ObjectNode answer(Postdate.Answer read) {
        ObjectNode made = JSON.createObjectNode();
        made.put("origin", origin(read.origin())).put("id", read.id()).put("verdict", read.verdict().text());
        return made.put("of", origin(read.of())).put("at_ms", read.at().toEpochMilli());
    }

    static void live(String broker, String name, int partitions, String target) throws Exception {
        var requests = new Postdate(name, partitions);
        Map<String, Object> producing = Map.of("bootstrap.servers", broker);
        try (var producer = new KafkaProducer<>(producing, new ByteArraySerializer(), new ByteArraySerializer())) {
            var later = Postdate.after(Duration.ofHours(1));
            producer.send(requests.schedule(target, "by id".getBytes(), later).id("java-1").record()).get();
            var sent = producer.send(requests.schedule(target, "by origin".getBytes(), later).record()).get();
            var kept = requests.schedule(target, "kept".getBytes(), Postdate.after(Duration.ofMillis(500)));
            producer.send(kept.id("java-2").key("java".getBytes()).record()).get();
            producer.send(requests.cancel(Postdate.id("java-1"))).get();
            producer.send(requests.cancel(Postdate.origin(name + "/" + sent.partition() + "/" + sent.offset()))).get();
        }
        Map<String, Object> consuming = Map.of(
            "bootstrap.servers", broker, "group.id", target, "isolation.level", "read_committed",
            "auto.offset.reset", "earliest");
        try (var consumer = new KafkaConsumer<>(consuming, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.subscribe(List.of(target, name + ".verdicts"));
            for (int read = 0; read < 3; ) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofSeconds(1))) {
                    if (record.topic().equals(target)) {
                        var delivered = Postdate.readDelivered(record.headers());
                        System.out.println(new String(record.value()) + " " + delivered.id() + " " + new String(record.key()));
                    } else {
                        var answer = Postdate.readVerdict(record.value());
                        System.out.println(answer.verdict().text() + " " + answer.id());
                    }
                    read++;
                }
            }
        }
    }
}
