"""Everything that touches the world: Spark, Kafka, Java, the command line. All thinking is in `coordinator`."""
