"""Tests of the removal of secrets: those of the settings, and those that lines of others contain."""

import pytest

from streaming.doctor.masking import MASKED, Mask

LINES = {
    "a password behind its name": "sasl.password=hunter2 and more",
    "a quoted password": 'password: "hunter2 with blanks"',
    "an unfinished quotation": "ssl_key_password='hunter2",
    "JSON": '{"client_secret": "hunter2"}',
    "Java's login": 'sasl.jaas.config=org.apache.Plain required username="ana" password="hunter2";',
    "an address": "cannot reach https://ana:hunter2@store:9000/bucket",
    "a header": "Authorization: Bearer hunter2.hunter2",
    "a private key": "-----BEGIN PRIVATE KEY-----\nhunter2\n-----END PRIVATE KEY-----\nend",
    "half a private key": "-----BEGIN EC PRIVATE KEY----- hunter2",
    "a key of a store": "fs.s3a.access.key=hunter2, fs.s3a.secret.key=hunter2",
}


@pytest.mark.parametrize("line", LINES.values(), ids=LINES)
def test_what_looks_like_a_secret_is_removed(line: str) -> None:
    masked = Mask([]).masked(line)
    assert "hunter2" not in masked
    assert MASKED in masked


def test_known_secret_is_removed_with_the_rest_of_its_word() -> None:
    """The rest would show which letters are missing."""
    mask = Mask(["kafka", "two words"])
    assert mask.masked("see kafka-python, and two words.") == f"see {MASKED} and {MASKED} {MASKED}"
    assert mask.masked("each key of one file: words") == f"each key of one file: {MASKED}"


def test_long_text_takes_no_time() -> None:
    """A log may have a line of a megabyte, and each word of it may be the begin of a name."""
    for text in ("x" * 200_000, "jaas" * 50_000, "://" * 60_000, "token=" * 30_000, "-----BEGIN " * 20_000):
        Mask(["hunter2"]).masked(text)


def test_other_texts_stay() -> None:
    for text in ("Batch 17 has ended.", "fencing_token=17", "a key, a token and a password", "http://h:1/a@b"):
        assert Mask([]).masked(text) == text
