"""Forks children of the test process, for the tests of fork safety.

A child never returns to pytest, which would run the tests a second time. It ends itself after a time limit, because the
caller of pytest waits for every process that holds its pipes.
"""

from __future__ import annotations

import os
import signal
import traceback
from collections.abc import Callable

import pytest

TIME_LIMIT_S = 60

forking = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")


def fork(check: Callable[[], object]) -> Callable[[], bool]:
    """Call `check` in a child process. The returned function waits for it, and returns whether the check held."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(TIME_LIMIT_S)
            status = 0 if check() else 2
        except BaseException:  # noqa: BLE001 - it must not reach pytest
            traceback.print_exc()
        finally:
            os._exit(status)
    return lambda: os.waitpid(child, 0)[1] == 0
