"""`python -m streaming`, and the script for spark-submit: the same commands as `coordinator`."""

from streaming.cli.main import main

main()
