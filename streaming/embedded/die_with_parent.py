"""A program that runs another program. The kernel kills it when the thread that started it ends, even by kill -9.

    python die_with_parent.py PARENT_PID PROGRAM ARGUMENT...

This is a separate script instead of a `preexec_fn`, which may deadlock if the parent has threads.

Source: prctl(2), PR_SET_PDEATHSIG, which outlives execve(2).
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main(parent_pid: int, program: list[str]) -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:  # the parent ended before the death signal was set
        sys.exit(1)
    os.execv(program[0], program)  # noqa: S606  this avoids a shell


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
