"""The parts of groupcoord that use Spark, Kafka, Java and the command line. The logic of the protocol is in
`coordinator`.
"""

__version__ = "0.1.0"
