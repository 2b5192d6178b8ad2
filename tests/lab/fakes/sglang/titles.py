"""A process's title and name, set as the setproctitle package sets them: over the memory of its command line."""

from __future__ import annotations

import ctypes

PR_SET_PDEATHSIG, PR_SET_NAME, SIGKILL = 1, 15, 9


def retitle(title: str) -> None:
    """/proc/PID/cmdline becomes the title and then NULs, /proc/PID/comm its first 15 characters."""
    with open("/proc/self/stat", "rb") as stat:
        fields = stat.read().rpartition(b") ")[2].split()
    start, end = int(fields[45]), int(fields[46])  # arg_start and arg_end, proc(5)
    text = title.encode()[: end - start - 1]
    ctypes.memset(start, 0, end - start)
    ctypes.memmove(start, text, len(text))
    ctypes.CDLL(None).prctl(PR_SET_NAME, title.encode(), 0, 0, 0)


def die_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0)
