"""An image file as a model input."""

from __future__ import annotations

from pathlib import Path

from verify.core import Array, InputSpec, UsageError
from verify.graphs.signature import Port

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp")


def image(path: Path, spec: InputSpec | None, port: Port) -> Array:
    """The image resized to the input's shape, (1, c, h, w) or (1, h, w, c) as declared, 0 to 255.

    uint8 where mean and std are declared, else float32. Raises UsageError without a declared layout, or without a size.
    """
    import numpy as np

    where = f"[input.{port.name}]"
    if spec is None or not spec.layout:
        raise UsageError(f"an image ({path.name}) needs to know its layout", where, 'write layout = "nchw" or "nhwc"')
    shape = tuple(spec.shape or ())
    if not shape and port.shape is not None and len(port.shape) == 4:
        n, c, h, w = port.shape
        free = n if isinstance(n, int) else 1
        if isinstance(c, int) and isinstance(h, int) and isinstance(w, int):
            shape = (free, c, h, w) if spec.layout == "nchw" else (free, h, w, c)
    if len(shape) != 4 or shape[0] != 1:
        raise UsageError(
            f"an image ({path.name}) needs a fixed size", where, "write shape = [1, 3, 224, 224] or the like"
        )
    _, a, b, c = shape
    (height, width), channels = ((b, c), a) if spec.layout == "nchw" else ((a, b), c)
    if channels not in (1, 3):
        raise UsageError(f"an image has no {channels} channels", where, 'write "file.py:function" instead of images')
    pixels = _read(path, width, height, gray=channels == 1)
    if spec.color == "bgr" and channels == 3:
        pixels = pixels[..., ::-1]
    pixels = pixels.transpose(2, 0, 1)[None] if spec.layout == "nchw" else pixels[None]
    return np.ascontiguousarray(pixels, np.uint8 if spec.mean and port.dtype == "float32" else np.float32)


def _read(path: Path, width: int, height: int, gray: bool) -> Array:
    """(h, w, c) uint8 in RGB order, resized bilinearly, by Pillow or OpenCV."""
    import numpy as np

    try:
        from PIL import Image
    except ImportError:
        return _opencv(path, width, height, gray)
    try:
        with Image.open(path) as opened:
            resized = opened.convert("L" if gray else "RGB").resize((width, height), Image.Resampling.BILINEAR)
    except OSError as error:
        raise UsageError(f"not a readable image ({error})", str(path), "replace the file") from None
    return np.asarray(resized, np.uint8).reshape(height, width, 1 if gray else 3)


def _opencv(path: Path, width: int, height: int, gray: bool) -> Array:
    import numpy as np

    try:
        import cv2
    except ImportError:
        raise UsageError("nothing here reads images", str(path), "pip install pillow") from None
    read = cv2.imread(str(path), cv2.IMREAD_GRAYSCALE if gray else cv2.IMREAD_COLOR)
    if read is None:
        raise UsageError("not a readable image", str(path), "replace the file")
    resized = np.asarray(cv2.resize(read, (width, height), interpolation=cv2.INTER_LINEAR), np.uint8)
    return resized.reshape(height, width, 1) if gray else resized[..., ::-1]
