import java.util.List;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.Stores;

/**
 * Counts words exactly once: `WordCount BOOTSTRAP APPLICATION_ID SOURCE SINK STATE_FOLDER [NAME=VALUE ...]`, with
 * settings of Kafka Streams.
 *
 * <p>Nothing is cached, so the sink gets each count of each word. The stores are in memory.
 */
public final class WordCount {
    public static void main(final String[] arguments) {
        final Properties settings = new Properties();
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0]);
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, arguments[1]);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, arguments[4]);
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        settings.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0);
        settings.put(StreamsConfig.consumerPrefix("auto.offset.reset"), "earliest");
        settings.put(StreamsConfig.consumerPrefix("max.poll.records"), 50);
        for (int each = 5; each < arguments.length; each++) {
            final String[] setting = arguments[each].split("=", 2);
            settings.put(setting[0], setting[1]);
        }

        final var strings = Serdes.String();
        final var builder = new StreamsBuilder();
        builder.stream(arguments[2], Consumed.with(strings, strings))
            .flatMapValues(line -> List.of(line.split(" ")))
            .groupBy((key, word) -> word, Grouped.with("words", strings, strings))
            .count(Materialized.<String, Long>as(Stores.inMemoryKeyValueStore("counts"))
                .withKeySerde(strings).withValueSerde(Serdes.Long()))
            .toStream()
            .mapValues(String::valueOf)
            .to(arguments[3], Produced.with(strings, strings));

        final var streams = new KafkaStreams(builder.build(), settings);
        streams.setStateListener((state, before) -> System.out.println("state " + state));
        Runtime.getRuntime().addShutdownHook(new Thread(streams::close));
        streams.start();
    }
}
