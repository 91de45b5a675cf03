"""The machine loses its power, or a disk turns a bit, while or after real parts ran; they are started again and judged.

One run of a broker and a coordinator under load is recorded by `journal.c`: all they write, name and sync. From that
recording any number of disks are made as a loss of power at some moment could have left them, or with one bit turned.
A real broker and the real coordinator are started on each. They go on as if nothing had happened, or refuse with a
sentence, or tell what is lost; nothing else will do.

    python -m tests.power checkpoint-cut --runs 20        see `tests.power.runs` for the kinds
    make soak KIND=power MINUTES=25                        all kinds in turn, counted in docs/tallies
"""
