"""Setup of a forked process: leave signals to the parent, end with it, and prefer it for the OOM killer."""

import ctypes
import os
import signal
from contextlib import suppress
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_OOM_SCORE = Path("/proc/self/oom_score_adj")
# The kernel kills processes with high scores first when memory runs out; the highest is 1,000.
_HIGH_OOM_SCORE = "500"
# A terminal or service manager sends these to the whole process group; the parent handles them.
_PARENT_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def leave_signals_to_parent() -> None:
    """Ignore the signals that ask for an end or a reload; the parent handles them."""
    signal.set_wakeup_fd(-1)
    for number in _PARENT_SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def end_with_parent(parent: int) -> None:
    """Have the kernel kill this process when the thread that forked it ends, where the system can do that."""
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def prefer_for_oom_kill() -> None:
    """Raise the OOM score, so that this process is killed before others."""
    with suppress(OSError):
        _OOM_SCORE.write_text(_HIGH_OOM_SCORE, encoding="ascii")
