"""A torch module as a session: inputs by name, outputs by the graph's names, nothing shared with the module."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verify.backends.source import by_name, flat, named
from verify.core import Array, Tensors, UsageError
from verify.graphs.signature import Signature
from verify.usercode import blaming


@contextmanager
def one_thread() -> Iterator[None]:
    """Torch on one thread until the end: sums do not depend on the number of cores, and nothing waits for a busy one.

    MiniLM (64 tokens) takes 18 ms of one core either way on an idle machine of 2 cores; with both cores busy, 63 ms on
    one thread and 615 ms on two, which spin while they wait for each other.
    """
    import torch

    usual = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(usual)


@dataclass(frozen=True)
class TorchSession:
    """Runs a module in inference mode; floating inputs are cast to float64 where that is asked for."""

    module: Any
    graph: Signature
    dtype: str
    path: Path
    where: str
    names: tuple[str, ...]  # of forward's parameters; empty where inputs go by position

    @classmethod
    def of(cls, module: Any, graph: Signature, dtype: str, path: Path, where: str) -> TorchSession:
        """Raises UsageError for a module in training mode; one that is not all float32 is copied, never changed."""
        import torch

        training = [name or "the module itself" for name, part in module.named_modules() if part.training]
        if training:
            what = f"in training mode ({len(training)} modules, first {training[0]})"
            raise UsageError(what, where, "return model.eval(): dropout and batch norm compute something else there")
        wanted = torch.float64 if dtype == "float64" else torch.float32
        held = [*module.parameters(), *module.buffers()]
        if any(t.is_floating_point() and t.dtype != wanted for t in held):
            module = copy.deepcopy(module).to(wanted)
        inputs = [port.name for port in graph.inputs]
        parameters = inspect.signature(module.forward).parameters
        names = tuple(inputs) if set(inputs) <= set(parameters) else ()
        return cls(module, graph, dtype, path, where, names)

    def run(self, feeds: Tensors) -> Tensors:
        """Raises UsageError when forward raises, NotComparable when it returns another number of outputs."""
        import torch

        wide = self.dtype == "float64"
        tensors = [self._tensor(name, feeds[name], wide) for name in (port.name for port in self.graph.inputs)]
        usual = torch.get_default_dtype()
        try:
            if wide:  # constants that forward makes are to be float64 too
                torch.set_default_dtype(torch.float64)
            with torch.inference_mode(), blaming(self.path):
                if self.names:
                    result = self.module(**dict(zip(self.names, tensors, strict=True)))
                else:
                    result = self.module(*tensors)
        finally:
            torch.set_default_dtype(usual)
        held = by_name(result, self.graph) or named(flat(result), self.graph, self.where)
        return {name: _array(value) for name, value in held.items()}

    def _tensor(self, name: str, value: Array, wide: bool) -> Any:
        import numpy as np
        import torch

        if value.dtype.kind in "OUS":
            raise UsageError(f"input {name!r} is text, which torch cannot be fed", self.where, "use a callable source")
        # a copy, as forward may write into what it is given
        tensor = torch.from_numpy(np.array(value))
        return tensor.double() if wide and tensor.is_floating_point() else tensor


def _array(value: Any) -> Array:
    """A copy as an array: what forward returned may be a view of its state. bfloat16 has no numpy dtype: float32."""
    import numpy as np
    import torch

    if not isinstance(value, torch.Tensor):
        return np.array(value)
    plain = value.detach().cpu()
    return np.array((plain.float() if plain.dtype == torch.bfloat16 else plain).numpy())
