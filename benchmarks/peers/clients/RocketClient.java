import java.io.BufferedOutputStream;
import java.io.DataOutputStream;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.Random;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.protocol.RemotingSysResponseCode;

/**
 * The client program for RocketMQ.
 *
 * <pre>
 * RocketClient NAMES send TOPIC COUNT RATE DUE_MS   prints {"acknowledged": ..., "seconds": ...}
 * RocketClient NAMES receive TOPIC                  writes rows (see benchmarks/peers/arrivals.py)
 * </pre>
 *
 * <p>The receiver reads queues from their beginning and keeps its offsets to itself: a message that it gets twice is in the topic twice.
 */
public final class RocketClient {
    private static final int BODY_SIZE_BYTES = 150;
    private static final int IN_FLIGHT_MAX = 512;
    private static final int QUEUES = 8;
    private static final int STEP_MS = 5;
    private static final int TIMEOUT_MS = 60_000;
    /** The stdout of the process. System.out is stderr here, since RocketMQ's library logs to it. */
    private static final PrintStream STDOUT = new PrintStream(new FileOutputStream(FileDescriptor.out));

    public static void main(String[] arguments) {
        System.setOut(System.err);
        try {
            if (arguments[1].equals("send")) {
                int count = Integer.parseInt(arguments[3]);
                send(arguments[0], arguments[2], count, Integer.parseInt(arguments[4]), Long.parseLong(arguments[5]));
            } else {
                receive(arguments[0], arguments[2]);
            }
        } catch (Exception error) {
            fail(error.toString()); // the library's threads would keep the process alive
        }
    }

    private static DefaultMQProducer producer(String names) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("peers");
        producer.setNamesrvAddr(names);
        producer.setSendMsgTimeout(TIMEOUT_MS);
        producer.setRetryTimesWhenSendAsyncFailed(0);
        producer.start();
        return producer;
    }

    private static void send(String names, String topic, int count, int rate, long dueMs) throws Exception {
        DefaultMQProducer producer = producer(names);
        byte[] filler = new byte[1 << 16];
        Random chance = new Random(7);
        chance.nextBytes(filler);
        Semaphore free = new Semaphore(IN_FLIGHT_MAX);
        Queue<Message> refused = new ConcurrentLinkedQueue<>();
        AtomicInteger refusals = new AtomicInteger();
        long began = System.nanoTime();
        for (int number = 0; number < count; number++) {
            while (rate > 0 && number > (System.nanoTime() - began) / 1e9 * rate) {
                Thread.sleep(STEP_MS);
            }
            long due = dueMs > 0 ? dueMs : System.currentTimeMillis() + 1_000 + chance.nextInt(4_001);
            byte[] body = new byte[BODY_SIZE_BYTES];
            ByteBuffer.wrap(body).putLong(number).putLong(due);
            System.arraycopy(filler, (int) (number * 61L % (filler.length - BODY_SIZE_BYTES)), body, 16, BODY_SIZE_BYTES - 16);
            Message message = new Message(topic, body);
            message.setDeliverTimeMs(due);
            sendOne(producer, message, free, refused, refusals);
            for (Message again = refused.poll(); again != null; again = refused.poll()) {
                sendOne(producer, again, free, refused, refusals);
            }
        }
        do {
            if (!free.tryAcquire(IN_FLIGHT_MAX, TIMEOUT_MS, TimeUnit.MILLISECONDS)) {
                throw new IllegalStateException("not all messages were acknowledged");
            }
            free.release(IN_FLIGHT_MAX);
            for (Message again = refused.poll(); again != null; again = refused.poll()) {
                sendOne(producer, again, free, refused, refusals);
            }
        } while (free.availablePermits() < IN_FLIGHT_MAX || !refused.isEmpty());
        double seconds = (System.nanoTime() - began) / 1e9;
        STDOUT.printf("{\"acknowledged\": %d, \"seconds\": %.6f, \"refused\": %d}%n", count, seconds, refusals.get());
        System.exit(0);
    }

    /** Sends a message. One that the broker refuses because it is busy, and so has not stored, is sent again later. */
    private static void sendOne(
            DefaultMQProducer producer, Message message, Semaphore free, Queue<Message> refused, AtomicInteger refusals)
            throws Exception {
        free.acquire();
        producer.send(message, new SendCallback() {
            @Override
            public void onSuccess(SendResult result) {
                if (result.getSendStatus() != SendStatus.SEND_OK) {
                    fail("a message was not acknowledged: " + result.getSendStatus());
                }
                free.release();
            }

            @Override
            public void onException(Throwable error) {
                if (!(error instanceof MQBrokerException busy) || busy.getResponseCode() != RemotingSysResponseCode.SYSTEM_BUSY) {
                    fail("a message was not acknowledged: " + error);
                }
                refusals.incrementAndGet();
                refused.add(message);
                free.release();
            }
        });
    }

    private static void fail(String reason) {
        System.err.println(reason);
        System.exit(1);
    }

    private static void receive(String names, String topic) throws Exception {
        DefaultMQProducer creator = producer(names);
        retry(() -> {
            creator.createTopic("TBW102", topic, QUEUES, Map.of());
            return null;
        });
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer("peers");
        consumer.setNamesrvAddr(names);
        consumer.setAutoCommit(false);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.start();
        consumer.assign(retry(() -> consumer.fetchMessageQueues(topic)));
        DataOutputStream out = new DataOutputStream(new BufferedOutputStream(STDOUT, 1 << 20));
        row(out, -1, 0, 0, 0);
        out.flush();
        while (true) {
            List<MessageExt> messages = consumer.poll(1_000);
            long nowUs = System.currentTimeMillis() * 1_000;
            for (MessageExt message : messages) {
                ByteBuffer body = ByteBuffer.wrap(message.getBody());
                row(out, body.getLong(), body.getLong(), nowUs, (long) message.getQueueId() << 48 | message.getQueueOffset());
            }
            out.flush();
        }
    }

    private static void row(DataOutputStream out, long... numbers) throws Exception {
        for (long number : numbers) {
            out.writeLong(number);
        }
    }

    private interface Attempt<T> {
        T get() throws Exception;
    }

    /** Repeats what a broker refuses until it has registered with the name server. */
    private static <T> T retry(Attempt<T> attempt) throws Exception {
        long deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(TIMEOUT_MS);
        while (true) {
            try {
                return attempt.get();
            } catch (Exception error) {
                if (System.nanoTime() > deadline) {
                    throw error;
                }
                Thread.sleep(100);
            }
        }
    }
}
