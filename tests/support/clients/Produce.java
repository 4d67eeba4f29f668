import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Produces the records described on standard input with Kafka's own Java client and its default partitioner, and
 * prints partition and offset of each. Arguments: bootstrap servers, topic. foreign_clients.py describes the input
 * lines.
 */
public class Produce {
    public static void main(String[] arguments) throws Exception {
        Map<String, Object> settings = Map.of("bootstrap.servers", arguments[0], "acks", "all");
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        byte[] key = null;
        byte[] value = null;
        List<org.apache.kafka.common.header.Header> headers = new ArrayList<>();
        try (KafkaProducer<byte[], byte[]> producer =
                new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                String[] words = line.split(" ");
                switch (words[0]) {
                    case "key" -> key = bytes(words[1]);
                    case "value" -> value = bytes(words[1]);
                    case "header" -> headers.add(new RecordHeader(words[1], bytes(words[2])));
                    case "send" -> {
                        RecordMetadata sent =
                            producer.send(new ProducerRecord<>(arguments[1], null, null, key, value, headers)).get();
                        System.out.println(sent.partition() + " " + sent.offset());
                        headers = new ArrayList<>();
                    }
                    default -> throw new IllegalArgumentException(line);
                }
            }
        }
    }

    private static byte[] bytes(String word) {
        return word.equals("null") ? null : HexFormat.of().parseHex(word.substring(1));
    }
}
