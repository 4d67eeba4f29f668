import static java.nio.charset.StandardCharsets.UTF_8;

import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Schedules two reminders with Kafka's own Java client, cancels one of them by its id, and waits for the other.
 *
 * The id is the key of the request, so that schedule and cancel meet in one partition; `postdate-key` is the key that
 * the reminder arrives with. The client's default partitioner is the one to use: set no `partitioner.class`.
 *
 *     java -cp "$KAFKA_LIBS/*" examples/java/ScheduleAndCancel.java
 *
 * KAFKA_LIBS is a folder with kafka-clients and what it needs. BOOTSTRAP and REQUESTS name the broker and the request
 * topic (localhost:9092, postdate.requests).
 */
public class ScheduleAndCancel {
    static final String BOOTSTRAP = System.getenv().getOrDefault("BOOTSTRAP", "localhost:9092");
    static final String REQUESTS = System.getenv().getOrDefault("REQUESTS", "postdate.requests");
    static final String REMINDERS = "example.java.reminders";

    static ProducerRecord<String, String> schedule(String id, String customer, String text, String delay) {
        var request = new ProducerRecord<>(REQUESTS, id, text);
        request.headers().add("postdate-topic", REMINDERS.getBytes(UTF_8));
        request.headers().add("postdate-delay", delay.getBytes(UTF_8));
        request.headers().add("postdate-id", id.getBytes(UTF_8));
        request.headers().add("postdate-key", customer.getBytes(UTF_8));
        return request;
    }

    static ProducerRecord<String, String> cancel(String id) {
        var request = new ProducerRecord<String, String>(REQUESTS, id, null);
        request.headers().add("postdate-action", "cancel".getBytes(UTF_8));
        request.headers().add("postdate-id", id.getBytes(UTF_8));
        return request;
    }

    public static void main(String[] arguments) throws Exception {
        try (var admin = Admin.create(Map.of("bootstrap.servers", BOOTSTRAP))) {
            if (!admin.listTopics().names().get().contains(REMINDERS)) {
                admin.createTopics(List.of(new NewTopic(REMINDERS, Optional.of(1), Optional.empty()))).all().get();
            }
        }
        Map<String, Object> producing = Map.of("bootstrap.servers", BOOTSTRAP, "acks", "all");
        try (var producer = new KafkaProducer<>(producing, new StringSerializer(), new StringSerializer())) {
            producer.send(schedule("reminder-1", "customer-42", "your basket is waiting", "2s")).get();
            producer.send(schedule("reminder-2", "customer-42", "your voucher ends today", "PT2S")).get();
            producer.send(cancel("reminder-1")).get();
        }
        Map<String, Object> consuming = Map.of(
            "bootstrap.servers", BOOTSTRAP,
            "group.id", "example.java",
            "isolation.level", "read_committed",
            "auto.offset.reset", "earliest");
        try (var consumer = new KafkaConsumer<>(consuming, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(REMINDERS));
            for (int arrived = 0; arrived == 0; ) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofSeconds(1))) {
                    var id = new String(record.headers().lastHeader("postdate-id").value(), UTF_8);
                    System.out.println(id + " for " + record.key() + ": " + record.value());
                    arrived++;
                }
            }
        }
    }
}
