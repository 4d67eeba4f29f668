import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Prints the values of a topic, one on each line, as a member of a share group (KIP-932) reads them. It stops after the
 * given last value. Arguments: bootstrap servers, group, topic, last value. The caller limits the time.
 */
public class ShareConsume {
    public static void main(String[] arguments) {
        Map<String, Object> settings = Map.of("bootstrap.servers", arguments[0], "group.id", arguments[1]);
        try (KafkaShareConsumer<byte[], byte[]> consumer =
                new KafkaShareConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.subscribe(List.of(arguments[2]));
            boolean isLast = false;
            while (!isLast) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200))) {
                    String value = new String(record.value(), StandardCharsets.UTF_8);
                    System.out.println(value);
                    isLast |= value.equals(arguments[3]);
                }
            }
            consumer.commitSync();
        }
    }
}
