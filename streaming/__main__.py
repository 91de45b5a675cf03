"""`python -m streaming`, and what spark-submit is given: the same commands as `coordinator`."""

from streaming.cli.main import main

main()
