"""What an interpreter has, as one line of JSON: run by that interpreter, so only the standard library is imported."""

import json
import os
import platform
import shutil
import tempfile
from importlib import metadata


def ships(distribution: metadata.Distribution, package: str) -> bool:
    """Whether this distribution holds an import package of that name."""
    top = distribution.read_text("top_level.txt")
    if top is not None:
        return package in top.split()
    return any(path.parts[:1] == (package,) for path in distribution.files or ())


def name(distribution: metadata.Distribution) -> str:
    return (distribution.metadata["Name"] or "").lower().replace("_", "-")


def temporary() -> "tuple[str, int]":
    """The folder for temporary files and the MB free in it; "" where nothing can be written."""
    folder = os.environ.get("TMPDIR") or tempfile.gettempdir()
    try:
        with tempfile.NamedTemporaryFile(dir=folder) as stream:
            stream.write(b"x")
            stream.flush()
        return folder, shutil.disk_usage(folder).free >> 20
    except OSError:
        return "", 0


def main() -> None:
    found = [d for d in metadata.distributions() if name(d)]
    toolkit = [d for d in found if name(d) == "rknn-toolkit2"]
    folder, free = temporary()
    answer = {
        "python": platform.python_version(),
        "platform": platform.system() + " " + platform.machine(),
        "packages": {name(d): d.version for d in reversed(found)},
        "verify": sorted({name(d) for d in found if ships(d, "verify")}),
        "requires": list((toolkit[0].requires or []) if toolkit else []),
        "tmpdir": folder,
        "free": free,
    }
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
