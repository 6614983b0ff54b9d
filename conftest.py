"""Settings of the whole test run."""

import signal
import threading

from hypothesis import settings

pytest_plugins = ["pytester"]

# The first example of a property pays for imports, and a busy machine is no fault of the code: pytest-timeout bounds.
settings.register_profile("verify", deadline=None)
settings.load_profile("verify")

# A shell starts background jobs with SIGINT ignored, which children inherit: tests that interrupt one need the default.
if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
