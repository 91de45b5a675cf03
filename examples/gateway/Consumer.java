/*
Consume through the gateway with Kafka's Java client, which knows nothing of this coordinator. The jars are the broker's:

    java -cp "$(python examples/gateway/class_path.py)" examples/gateway/Consumer.java localhost:9192

Output:

    Java reads order 1
    Java reads order 2
    Java reads order 3
    committed offset 3
*/

import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

class Consumer {
    static final String TOPIC = "java-orders";
    static final int RECORDS = 3;
    static final long WAIT_MS = 60_000;

    static void produce(String servers) throws Exception {
        try (var admin = Admin.create(Map.of("bootstrap.servers", servers))) {
            admin.createTopics(List.of(new NewTopic(TOPIC, 1, (short) 1))).all().get();
        } catch (ExecutionException error) {
            if (!(error.getCause() instanceof TopicExistsException)) { // from an earlier run
                throw error;
            }
        }
        var settings = Map.<String, Object>of("bootstrap.servers", servers);
        try (var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            for (int number = 1; number <= RECORDS; number++) {
                producer.send(new ProducerRecord<>(TOPIC, "order " + number));
            }
        }
    }

    static void consume(String servers) {
        var settings = Map.<String, Object>of(
            "bootstrap.servers", servers,
            "group.id", "java",
            "auto.offset.reset", "earliest",
            "enable.auto.commit", false);
        long untilMs = System.currentTimeMillis() + WAIT_MS;
        try (var consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(TOPIC));
            for (int read = 0; read < RECORDS; ) {
                if (System.currentTimeMillis() > untilMs) {
                    throw new IllegalStateException("not all records came in " + WAIT_MS + " ms");
                }
                for (var record : consumer.poll(Duration.ofSeconds(1))) {
                    System.out.println("Java reads " + record.value());
                    read++;
                }
            }
            consumer.commitSync();
            var partition = new TopicPartition(TOPIC, 0);
            System.out.println("committed offset " + consumer.committed(Set.of(partition)).get(partition).offset());
        }
    }

    public static void main(String[] arguments) throws Exception {
        String servers = arguments.length > 0 ? arguments[0] : "localhost:9192";
        produce(servers);
        consume(servers);
    }
}
