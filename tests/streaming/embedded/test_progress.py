"""Tests of the progress of a download, from the lines that Ivy writes."""

from streaming.embedded.progress import Download

STARTED = "downloading https://example.org/org/apache/kafka/one-4.4.0.jar ..."
ENDED = "[SUCCESSFUL ] org.apache.kafka#one;4.4.0!one.jar (12ms)"


def test_a_download_counts_jars_and_names_the_current_one() -> None:
    download = Download(2)
    assert str(download) == "0 of 2 jars have been downloaded."
    download.read("found org.apache.kafka#one;4.4.0 in central")
    assert str(download) == "0 of 2 jars have been downloaded; found org.apache.kafka#one;4.4.0."
    download.read(STARTED)
    assert str(download) == "0 of 2 jars have been downloaded; downloading one-4.4.0.jar."
    download.read("................ (1200kB)")
    download.read(ENDED)
    assert (download.done, download.step) == (1, "downloading one-4.4.0.jar")
    download.read(ENDED)
    assert str(download) == "2 of 2 jars have been downloaded."
