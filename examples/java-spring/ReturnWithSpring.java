import static java.nio.charset.StandardCharsets.UTF_8;

import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.springframework.kafka.core.DefaultKafkaConsumerFactory;
import org.springframework.kafka.core.DefaultKafkaProducerFactory;
import org.springframework.kafka.core.KafkaTemplate;
import org.springframework.kafka.listener.ConsumerRecordRecoverer;
import org.springframework.kafka.listener.ContainerProperties;
import org.springframework.kafka.listener.DefaultAfterRollbackProcessor;
import org.springframework.kafka.listener.KafkaMessageListenerContainer;
import org.springframework.kafka.listener.MessageListener;
import org.springframework.kafka.transaction.KafkaTransactionManager;
import org.springframework.util.backoff.FixedBackOff;

/**
 * Returns records that a listener of Spring for Apache Kafka fails to handle: they come back after a backoff, and the
 * listener goes on with the next record meanwhile. No retry topics, and no pause of a partition.
 *
 * Return and offset are one transaction, which Spring begins after it has aborted that of the listener. So no record is
 * lost, and each failure is returned exactly once. Postdate counts the attempts in the headers of the record.
 *
 * In a Spring Boot application, {@code afterRollback} becomes a bean: Boot gives it to the listener containers. Without
 * transactions, use {@code new DefaultErrorHandler(returned, new FixedBackOff(0, 0))}; then a failure may be returned twice.
 *
 *     mvn -q -f examples/java-spring/pom.xml compile exec:java  # ReturnWithSpring.java
 *
 * BOOTSTRAP and REQUESTS name the broker and the request topic (localhost:9092, postdate.requests), which needs
 * {@code format_version = 2}.
 */
public class ReturnWithSpring {
    static final String BOOTSTRAP = System.getenv().getOrDefault("BOOTSTRAP", "localhost:9092");
    static final String REQUESTS = System.getenv().getOrDefault("REQUESTS", "postdate.requests");
    static final String PARCELS = "example.spring.parcels";
    static final String POLICY = "base=200ms, factor=2, attempts=5";

    /** The error handler: sends a record as it came, with all its headers, to the request topic. */
    record ReturnToPostdate(KafkaTemplate<String, String> template) implements ConsumerRecordRecoverer {
        @Override
        public void accept(ConsumerRecord<?, ?> record, Exception failure) {
            var cause = failure.getCause() == null ? failure : failure.getCause(); // Spring wraps that of the listener
            var request = new ProducerRecord<>(REQUESTS, (String) record.key(), (String) record.value());
            record.headers().forEach(header -> request.headers().add(header));
            request.headers().add("postdate-topic", record.topic().getBytes(UTF_8));
            request.headers().add("postdate-retry", POLICY.getBytes(UTF_8));
            request.headers().add("postdate-error", String.valueOf(cause.getMessage()).getBytes(UTF_8));
            template.send(request);
        }
    }

    static int attemptOf(ConsumerRecord<String, String> record) {
        var header = record.headers().lastHeader("postdate-attempt");
        return header == null ? 0 : Integer.parseInt(new String(header.value(), UTF_8));
    }

    public static void main(String[] arguments) throws Exception {
        try (var admin = Admin.create(Map.of("bootstrap.servers", BOOTSTRAP))) {
            if (!admin.listTopics().names().get().contains(PARCELS)) {
                admin.createTopics(List.of(new NewTopic(PARCELS, Optional.of(1), Optional.empty()))).all().get();
            }
        }
        var producers = new DefaultKafkaProducerFactory<String, String>(Map.of(
            "bootstrap.servers", BOOTSTRAP, "key.serializer", StringSerializer.class,
            "value.serializer", StringSerializer.class, "transactional.id", "example.spring.parcels-"));
        var consumers = new DefaultKafkaConsumerFactory<String, String>(Map.of(
            "bootstrap.servers", BOOTSTRAP, "group.id", "example.spring.parcels", "auto.offset.reset", "earliest",
            "isolation.level", "read_committed", "key.deserializer", StringDeserializer.class,
            "value.deserializer", StringDeserializer.class));
        var template = new KafkaTemplate<>(producers);

        var settings = new ContainerProperties(PARCELS);
        var delivered = new CountDownLatch(1);
        settings.setKafkaAwareTransactionManager(new KafkaTransactionManager<>(producers));
        settings.setMessageListener((MessageListener<String, String>) parcel -> {
            if (attemptOf(parcel) < 2) {
                System.out.println(parcel.value() + ": nobody is at home");
                throw new IllegalStateException("nobody is at home");
            }
            System.out.println(parcel.value() + ": delivered after " + attemptOf(parcel) + " retries");
            delivered.countDown();
        });
        var afterRollback = new DefaultAfterRollbackProcessor<String, String>(
            new ReturnToPostdate(template), new FixedBackOff(0, 0), template, true);
        var container = new KafkaMessageListenerContainer<>(consumers, settings);
        container.setAfterRollbackProcessor(afterRollback);
        container.start();
        template.executeInTransaction(sender -> sender.send(PARCELS, "customer-7", "a book"));
        delivered.await();
        container.stop(); // waits for the transaction of the listener
        producers.destroy();
    }
}
