"""Named arrays in .npz files, whatever their names, and nothing but arrays."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from verify.core import Array, UsageError


def read_npz(path: Path) -> dict[str, Array]:
    """The members of an .npz file; raises UsageError when it is unreadable or holds Python objects."""
    import numpy as np

    try:
        with np.load(path, allow_pickle=False) as held:
            return {member: held[member] for member in held.files}
    except Exception as error:  # zipfile's, numpy's and zlib's own kinds; a bare array has no files either
        raise UsageError(f"not a readable .npz file ({error})", str(path), "write it again with numpy.savez") from None


def write_npz(path: Path, tensors: Mapping[str, Array]) -> None:
    """As numpy.savez, for names that could not be keyword arguments too."""
    import zipfile

    import numpy as np

    with zipfile.ZipFile(path, "w") as archive:
        for name, value in tensors.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as stream:
                np.lib.format.write_array(stream, np.asarray(value), allow_pickle=False)  # type: ignore[no-untyped-call]
