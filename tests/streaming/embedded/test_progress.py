"""Tests of the progress of a download, which is read from Ivy's output."""

from streaming.embedded.jars import Download

STARTED = "downloading https://example.org/org/apache/kafka/one-4.4.0.jar ..."
ENDED = "[SUCCESSFUL ] org.apache.kafka#one;4.4.0!one.jar (12ms)"


def test_a_download_counts_jars_and_names_the_current_one() -> None:
    download = Download(2)
    assert download.counts == "0 of 2 jars"
    download.read("found org.apache.kafka#one;4.4.0 in central")
    assert download.counts == "0 of 2 jars; found org.apache.kafka#one;4.4.0"
    download.read(STARTED)
    assert download.line(10.0) == "Downloading, 10 s: 0 of 2 jars; downloading one-4.4.0.jar."
    download.read("................ (1200kB)")
    download.read(ENDED)
    assert download.counts == "1 of 2 jars; downloading one-4.4.0.jar"
    download.read(ENDED)
    download.read(ENDED)
    assert download.counts == "2 of 2 jars"
