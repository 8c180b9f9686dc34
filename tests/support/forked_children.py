"""Children of the process that runs the tests. They never come back to the suite, which they would run a second time,
and never outlive their patience: whoever waits for that process waits for them too, since they have its pipes."""

from __future__ import annotations

import os
import signal
import traceback
from collections.abc import Callable

import pytest

PATIENCE_S = 60

forking = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")


def fork(check: Callable[[], object]) -> Callable[[], bool]:
    """Call `check` in a child, beside which the test goes on; what is returned waits, and tells whether it held."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(PATIENCE_S)
            status = 0 if check() else 2
        except BaseException:  # noqa: BLE001 - it must not get to pytest
            traceback.print_exc()
        finally:
            os._exit(status)
    return lambda: os.waitpid(child, 0)[1] == 0
