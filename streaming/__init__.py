"""The parts that use Spark, Kafka, Java and the command line. The logic of the protocol is in `coordinator`."""
