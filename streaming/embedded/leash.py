"""Becomes another program, one that is killed when the thread that started it ends, even by kill -9.

    python leash.py PARENT_PID PROGRAM ARGUMENT...

A script of its own rather than a `preexec_fn`, which may deadlock where the parent has threads.

Source: prctl(2), PR_SET_PDEATHSIG, which outlives execve(2).
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main(parent_pid: int, program: list[str]) -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:  # it ended before the leash was on
        sys.exit(1)
    os.execv(program[0], program)  # noqa: S606  a shell is what this avoids


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
