import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ConcurrentHashMap;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Many consumers in one JVM, each in its own thread, with the commands and the messages of `rolling_librdkafka`.
 *
 * <p>All settings are the defaults, but for the first offset to read.
 */
public final class RollingMembers {
    private static final Duration POLL = Duration.ofMillis(100);

    public static void main(final String[] arguments) throws Exception {
        Thread.setDefaultUncaughtExceptionHandler((thread, error) -> {
            error.printStackTrace();
            Runtime.getRuntime().halt(1);
        });
        final var members = new ConcurrentHashMap<String, Member>();
        final var commands = new BufferedReader(new InputStreamReader(System.in));
        String line;
        while ((line = commands.readLine()) != null) {
            final String[] words = line.split(" ");
            switch (words[0]) {
                case "start" -> {
                    final var member = new Member(words[1], words[2], words[3], words[4]);
                    members.put(words[1], member);
                    new Thread(member, words[1]).start();
                }
                case "close" -> members.remove(words[1]).closes = true;
                default -> {
                    members.values().forEach(Member::flush);
                    write("flushed", "", "");
                }
            }
        }
        Runtime.getRuntime().halt(0);
    }

    private static void write(final String what, final String member, final String fields) {
        final var now = java.time.Instant.now();
        final String at = String.format("%d.%06d", now.getEpochSecond(), now.getNano() / 1000);
        final String message =
            "{\"what\": \"" + what + "\", \"member\": \"" + member + "\", \"at_s\": " + at + fields + "}";
        synchronized (System.out) {
            System.out.println(message);
            System.out.flush();
        }
    }

    private static final class Member implements Runnable, ConsumerRebalanceListener {
        private final String name;
        private final String topic;
        private final Properties settings = new Properties();
        private final Map<Integer, long[]> runs = new HashMap<>();
        private KafkaConsumer<byte[], byte[]> consumer;
        volatile boolean closes = false;

        Member(final String name, final String group, final String servers, final String topic) {
            this.name = name;
            this.topic = topic;
            settings.put(ConsumerConfig.BOOTSTRAP_SERVERS_CONFIG, servers);
            settings.put(ConsumerConfig.GROUP_ID_CONFIG, group);
            settings.put(ConsumerConfig.CLIENT_ID_CONFIG, name);
            settings.put(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "earliest");
            settings.put(ConsumerConfig.KEY_DESERIALIZER_CLASS_CONFIG, ByteArrayDeserializer.class);
            settings.put(ConsumerConfig.VALUE_DESERIALIZER_CLASS_CONFIG, ByteArrayDeserializer.class);
        }

        @Override
        public void run() {
            write("started", name, "");
            consumer = new KafkaConsumer<>(settings);
            consumer.subscribe(List.of(topic), this);
            while (!closes) {
                consumer.poll(POLL).forEach(record -> take(record.partition(), record.offset()));
            }
            write("closing", name, "");
            consumer.close();
            flush();
            write("closed", name, "");
        }

        private synchronized void take(final int partition, final long offset) {
            final long[] run = runs.get(partition);
            if (run != null && run[1] != offset) {
                flush();
            }
            runs.computeIfAbsent(partition, any -> new long[] {offset, offset})[1] = offset + 1;
        }

        synchronized void flush() {
            if (!runs.isEmpty()) {
                final String read = runs.entrySet().stream()
                    .map(run -> "[" + run.getKey() + ", " + run.getValue()[0] + ", " + run.getValue()[1] + "]")
                    .collect(Collectors.joining(", "));
                write("read", name, ", \"runs\": [" + read + "]");
                runs.clear();
            }
        }

        @Override
        public void onPartitionsAssigned(final Collection<TopicPartition> partitions) {
            changed("assigned", partitions, ", \"generation\": " + consumer.groupMetadata().generationId());
        }

        @Override
        public void onPartitionsRevoked(final Collection<TopicPartition> partitions) {
            changed("revoked", partitions, "");
        }

        @Override
        public void onPartitionsLost(final Collection<TopicPartition> partitions) {
            changed("lost", partitions, "");
        }

        private void changed(final String what, final Collection<TopicPartition> partitions, final String fields) {
            final String numbers =
                partitions.stream().map(each -> "" + each.partition()).collect(Collectors.joining(", "));
            write(what, name, ", \"partitions\": [" + numbers + "]" + fields);
            flush();
        }
    }
}
