"""Settings of the whole test run."""

from hypothesis import settings

pytest_plugins = ["pytester"]

# The first example of a property pays for imports, and a busy machine is no fault of the code: pytest-timeout bounds.
settings.register_profile("verify", deadline=None)
settings.load_profile("verify")
