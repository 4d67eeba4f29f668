import static java.nio.charset.StandardCharsets.UTF_8;

import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Returns records that fail, with Kafka's own Java client: they come back after a backoff, until they succeed.
 *
 * Return and offset are one transaction, and the consumer reads committed records only. So whenever it dies, no record is
 * lost, and each failure is returned exactly once. Postdate counts the attempts in the headers of the record.
 *
 *     java -cp "$KAFKA_LIBS/*" examples/java/RetryByPolicy.java
 *
 * KAFKA_LIBS is a folder with kafka-clients and what it needs. BOOTSTRAP and REQUESTS name the broker and the request
 * topic (localhost:9092, postdate.requests), which needs `format_version = 2`. PARCELS names the topic; if it is set, the
 * program sends no parcel, and consumes until it is stopped.
 */
public class RetryByPolicy {
    static final String BOOTSTRAP = System.getenv().getOrDefault("BOOTSTRAP", "localhost:9092");
    static final String REQUESTS = System.getenv().getOrDefault("REQUESTS", "postdate.requests");
    static final String PARCELS = System.getenv().getOrDefault("PARCELS", "example.java.parcels");
    static final String POLICY = "base=200ms, factor=2, attempts=5";

    /** Fails twice. */
    static void deliver(ConsumerRecord<String, String> parcel, int attempt) {
        if (attempt < 2) {
            throw new IllegalStateException("nobody is at home");
        }
    }

    static int attemptOf(ConsumerRecord<String, String> record) {
        var header = record.headers().lastHeader("postdate-attempt");
        return header == null ? 0 : Integer.parseInt(new String(header.value(), UTF_8));
    }

    /** The record as it came, with all its headers, and what Postdate must know. */
    static ProducerRecord<String, String> returned(ConsumerRecord<String, String> record, Exception why) {
        var request = new ProducerRecord<>(REQUESTS, record.key(), record.value());
        record.headers().forEach(header -> request.headers().add(header));
        request.headers().add("postdate-topic", record.topic().getBytes(UTF_8));
        request.headers().add("postdate-retry", POLICY.getBytes(UTF_8));
        request.headers().add("postdate-error", why.getMessage().getBytes(UTF_8));
        return request;
    }

    /** Creates the topic and sends a parcel. */
    static void begin(KafkaProducer<String, String> producer) throws Exception {
        try (var admin = Admin.create(Map.of("bootstrap.servers", BOOTSTRAP))) {
            if (!admin.listTopics().names().get().contains(PARCELS)) {
                admin.createTopics(List.of(new NewTopic(PARCELS, Optional.of(1), Optional.empty()))).all().get();
            }
        }
        producer.beginTransaction();
        producer.send(new ProducerRecord<>(PARCELS, "customer-42", "a book"));
        producer.commitTransaction();
    }

    public static void main(String[] arguments) throws Exception {
        boolean isExample = !System.getenv().containsKey("PARCELS");
        // A process that starts with this id ends the transaction in which its predecessor died.
        Map<String, Object> producing = Map.of("bootstrap.servers", BOOTSTRAP, "transactional.id", PARCELS + ".courier");
        Map<String, Object> consuming = Map.of(
            "bootstrap.servers", BOOTSTRAP,
            "group.id", PARCELS + ".courier",
            "group.instance.id", "courier-1", // it gets its partitions back at once when it starts again
            "isolation.level", "read_committed",
            "enable.auto.commit", false,
            "auto.offset.reset", "earliest");
        try (var producer = new KafkaProducer<>(producing, new StringSerializer(), new StringSerializer());
             var consumer = new KafkaConsumer<>(consuming, new StringDeserializer(), new StringDeserializer())) {
            producer.initTransactions();
            if (isExample) {
                begin(producer);
            }
            consumer.subscribe(List.of(PARCELS));
            for (boolean isOver = false; !isOver; ) {
                for (ConsumerRecord<String, String> parcel : consumer.poll(Duration.ofSeconds(1))) {
                    int attempt = attemptOf(parcel);
                    producer.beginTransaction();
                    try {
                        deliver(parcel, attempt);
                        System.out.println(parcel.value() + ": delivered after " + attempt + " retries");
                        isOver = isExample;
                    } catch (IllegalStateException why) {
                        producer.send(returned(parcel, why));
                        System.out.println(parcel.value() + ": " + why.getMessage());
                    }
                    var place = new TopicPartition(parcel.topic(), parcel.partition());
                    var next = Map.of(place, new OffsetAndMetadata(parcel.offset() + 1));
                    producer.sendOffsetsToTransaction(next, consumer.groupMetadata());
                    producer.commitTransaction();
                }
            }
        }
    }
}
