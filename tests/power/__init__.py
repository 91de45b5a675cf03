"""Losses of power and flipped bits on a disk, during or after a run of real processes.

`journal.c` records one run of a broker and a coordinator under load: all writes, changes of names and syncs. Any number
of disks are made from that recording, in a state that a loss of power at some moment could have left, or with one bit
flipped. A real broker and the real coordinator are started on each disk. They must continue without loss, or refuse to
start with a one-sentence error, or report the loss.

    python -m tests.power checkpoint-cut --runs 20        see `tests.power.runs` for the kinds
    make soak KIND=power MINUTES=25                        all kinds in turn, counted in docs/tallies
"""
