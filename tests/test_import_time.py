"""What starts up quickly stays free of heavy packages: modules are counted, not seconds."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("numpy", "onnx", "onnxruntime", "torch", "scipy", "PIL", "cv2", "rknn", "google.protobuf")


def loaded(code: str) -> set[str]:
    """The heavy packages in sys.modules of a fresh interpreter that has run `code`."""
    code += f"\nimport sys; print('LOADED', *[m for m in {HEAVY!r} if m in sys.modules])"
    held = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert held.returncode == 0, held.stderr
    return set(held.stdout.splitlines()[-1].split()[1:])


@pytest.mark.parametrize(
    "code",
    [
        "import verify; dir(verify); verify.__version__",
        "from verify import Candidate, Case, Measurement, Missing, Outcome, Tier, UsageError, Where, runs",
        "from verify import Policy, Verdict, Checker",
        "import verify.cli, contextlib\nwith contextlib.suppress(SystemExit): verify.cli.main(['--help'])",
        "import verify.pytest_plugin",
        "import verify.doctor",
    ],
)
def test_no_heavy_package_is_loaded(code):
    assert loaded(code) == set()


def test_every_public_name_can_be_had():
    import verify

    for name in verify.__all__:
        assert getattr(verify, name).__name__ == name
    assert set(verify.__all__) <= set(dir(verify))
    with pytest.raises(AttributeError, match="no_such_name"):
        verify.no_such_name  # noqa: B018
