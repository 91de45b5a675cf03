import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.AuthorizationException;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * A worker that copies records, each batch in one transaction: see tests/clients. Its argument is a JSON object.
 *
 * <p>The command `hold` makes it wait in its next transaction after it has sent the offsets, until the command `resume`.
 */
public final class Copier {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final int RECORDS_MAX = 20;
    private static final Duration POLL = Duration.ofMillis(100);

    private final BlockingQueue<String> orders = new LinkedBlockingQueue<>();
    private final String sink;
    private final KafkaConsumer<byte[], byte[]> consumer;
    private final KafkaProducer<byte[], byte[]> producer;

    public static void main(final String[] arguments) throws Exception {
        new Copier(JSON.readTree(arguments[0])).run();
    }

    private Copier(final JsonNode config) throws Exception {
        sink = config.get("sink").asText();
        consumer = new KafkaConsumer<>(
            Map.of(
                ConsumerConfig.BOOTSTRAP_SERVERS_CONFIG, config.get("bootstrap").asText(),
                ConsumerConfig.GROUP_ID_CONFIG, config.get("group").asText(),
                ConsumerConfig.CLIENT_ID_CONFIG, config.get("client_id").asText(),
                ConsumerConfig.SESSION_TIMEOUT_MS_CONFIG, config.get("session_ms").asInt(),
                ConsumerConfig.HEARTBEAT_INTERVAL_MS_CONFIG, config.get("heartbeat_ms").asInt(),
                ConsumerConfig.MAX_POLL_RECORDS_CONFIG, RECORDS_MAX,
                ConsumerConfig.ENABLE_AUTO_COMMIT_CONFIG, false,
                ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "earliest",
                ConsumerConfig.ISOLATION_LEVEL_CONFIG, "read_committed"),
            new ByteArrayDeserializer(), new ByteArrayDeserializer());
        producer = new KafkaProducer<>(
            Map.of(
                ProducerConfig.BOOTSTRAP_SERVERS_CONFIG, config.get("bootstrap").asText(),
                ProducerConfig.TRANSACTIONAL_ID_CONFIG, config.get("transactional_id").asText(),
                ProducerConfig.TRANSACTION_TIMEOUT_CONFIG, config.get("transaction_ms").asInt()),
            new ByteArraySerializer(), new ByteArraySerializer());
        final List<String> topics = new ArrayList<>();
        config.get("topics").forEach(topic -> topics.add(topic.asText()));
        consumer.subscribe(topics, new Telling());
        final Thread listening = new Thread(this::listen);
        listening.setDaemon(true);
        listening.start();
    }

    private void listen() {
        try (var lines = new BufferedReader(new InputStreamReader(System.in))) {
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                orders.add(line);
            }
        } catch (final Exception error) {
            error.printStackTrace();
        }
        Runtime.getRuntime().halt(1);
    }

    private void run() throws Exception {
        producer.initTransactions();
        boolean holds = false;
        for (String order = orders.poll(); !"close".equals(order); order = orders.poll()) {
            holds |= "hold".equals(order);
            final ConsumerRecords<byte[], byte[]> records = consumer.poll(POLL);
            if (!records.isEmpty()) {
                copy(records, holds);
                holds = false;
            }
        }
        consumer.close();
        producer.close();
        Runtime.getRuntime().halt(0);
    }

    private void copy(final ConsumerRecords<byte[], byte[]> records, final boolean holds) throws Exception {
        final Map<TopicPartition, OffsetAndMetadata> ends = new HashMap<>();
        try {
            producer.beginTransaction();
            for (final ConsumerRecord<byte[], byte[]> record : records) {
                producer.send(new ProducerRecord<>(sink, record.partition(), record.key(), record.value()));
                ends.put(new TopicPartition(record.topic(), record.partition()), new OffsetAndMetadata(record.offset() + 1));
            }
            producer.sendOffsetsToTransaction(ends, consumer.groupMetadata());
            if (holds) {
                tell("held", "partitions", List.of());
                while (!"resume".equals(orders.take())) {
                }
            }
            producer.commitTransaction();
        } catch (final ProducerFencedException | InvalidProducerEpochException | AuthorizationException error) {
            throw error;
        } catch (final KafkaException error) {
            tell("error", "error", error.toString());
            producer.abortTransaction();
            rewind();
            return;
        }
        tellCopied(records, ends);
    }

    private void rewind() {
        final Map<TopicPartition, OffsetAndMetadata> committed = consumer.committed(consumer.assignment());
        for (final TopicPartition partition : consumer.assignment()) {
            final OffsetAndMetadata offset = committed.get(partition);
            consumer.seek(partition, offset == null ? 0 : offset.offset());
        }
    }

    private static void tellCopied(
            final ConsumerRecords<byte[], byte[]> records, final Map<TopicPartition, OffsetAndMetadata> ends) {
        for (final TopicPartition partition : records.partitions()) {
            final List<Long> offsets = records.records(partition).stream().map(ConsumerRecord::offset).toList();
            tell("records", "partition", List.of(partition.topic(), partition.partition()), "offsets", offsets);
        }
        tell("committed", "offsets", ends.entrySet().stream()
            .map(end -> List.of(end.getKey().topic(), end.getKey().partition(), end.getValue().offset())).toList());
    }

    private static void tell(final String event, final Object... fields) {
        final Map<String, Object> told = new HashMap<>(Map.of("event", event));
        for (int at = 0; at < fields.length; at += 2) {
            told.put((String) fields[at], fields[at + 1]);
        }
        try {
            System.out.println(JSON.writeValueAsString(told));
        } catch (final Exception error) {
            throw new IllegalStateException(error);
        }
    }

    /** Writes which partitions the consumer gets and loses. */
    private static final class Telling implements ConsumerRebalanceListener {
        @Override
        public void onPartitionsAssigned(final Collection<TopicPartition> partitions) {
            tell("assigned", "partitions", pairs(partitions));
        }

        @Override
        public void onPartitionsRevoked(final Collection<TopicPartition> partitions) {
            tell("revoked", "partitions", pairs(partitions));
        }

        private static List<?> pairs(final Collection<TopicPartition> partitions) {
            return partitions.stream().map(each -> List.of(each.topic(), each.partition())).toList();
        }
    }
}
