"""PyTorch on a pretended accelerator: an operation that would mix devices on a real accelerator also fails here.

    KERAS_BACKEND=torch python -m pytest -p tests.pretended_accelerator tests/losses

Its tensors report the device "pretended" and compute on the processor. As on a real accelerator, an operation on
tensors of two devices is an error, except for scalars and for copies between the devices. Keras makes its tensors
there.
"""

import os

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

NAME, aten = "pretended", torch.ops.aten
COPIES = (aten._to_copy.default, aten.copy_.default)
# Tensors of a real accelerator accept indices of the processor.
INDEXES = (aten.index.Tensor, aten.index_put_.default)
# Tests that need more than operations: graphs of PyTorch, automatic half precision, recomputation.
NOT_PRETENDED = ("onnx", "export", "compiled_by_pytorch", "autocast", "rematerialisation", "session_of_half_precision")


class Pretended(torch.Tensor):
    """Tensor of the processor that reports to be on the accelerator."""

    @staticmethod
    def __new__(cls, inner):
        about = {"strides": inner.stride(), "storage_offset": inner.storage_offset(), "dtype": inner.dtype}
        tensor = torch.Tensor._make_wrapper_subclass(cls, inner.shape, device=f"{NAME}:0", **about)
        tensor.inner = inner
        return tensor

    def __repr__(self, **arguments):
        return f"Pretended({self.inner!r})"

    @classmethod
    def __torch_dispatch__(cls, operation, types, arguments=(), named=None):
        return run(operation, arguments, named or {})


class Accelerator(TorchDispatchMode):
    """Mode that also intercepts operations that make tensors out of none."""

    def __torch_dispatch__(self, operation, types, arguments=(), named=None):
        return run(operation, arguments, named or {})


def run(operation, arguments, named):
    """Runs the operation on the processor. Its result is on the requested device, or on its arguments' device."""
    tensors = [x for x in tree_leaves((arguments, named)) if isinstance(x, torch.Tensor)]
    ours = [x for x in tensors if isinstance(x, Pretended)]
    others = [x for x in tensors if not isinstance(x, Pretended) and x.ndim > 0 and x.device.type == "cpu"]
    if (
        ours
        and others
        and operation not in COPIES
        and not (operation in INDEXES and isinstance(arguments[0], Pretended))
    ):
        raise RuntimeError(f"{operation}: expected all tensors on one device, found {NAME}:0 and cpu")
    asked = named.get("device")
    stays = torch.device(asked).type == NAME if asked is not None else bool(ours)
    if operation is aten.copy_.default:
        stays = isinstance(arguments[0], Pretended)
    bare, bare_named = tree_map_only(Pretended, lambda x: x.inner, (arguments, named))
    if stays and asked is not None:
        bare_named["device"] = torch.device("cpu")
    result = operation(*bare, **bare_named)
    if not stays:
        return tree_map_only(torch.Tensor, torch.clone, result) if ours else result
    known = {id(x.inner): x for x in ours}  # what an operation in place gives back
    return tree_map_only(torch.Tensor, lambda x: known.get(id(x)) if id(x) in known else Pretended(x), result)


class Generator(torch.Generator):
    """Random numbers of the processor."""

    def __new__(cls, device="cpu"):
        return super().__new__(cls, device="cpu")


def begin():
    """Starts on import of this file, before the tests' conftest imports Keras. A hook of pytest would be late."""
    os.environ["KERAS_TORCH_DEVICE"] = NAME
    _setup_privateuseone_for_python_backend(NAME)
    torch.Generator = Generator
    torch._C._set_only_lift_cpu_tensors(True)  # arrays become tensors of the processor first, and then move
    torch.autograd.set_multithreading_enabled(False)  # gradients in this thread, where the mode is
    Accelerator().__enter__()


begin()


def pytest_collection_modifyitems(config, items):
    """Skips tests that need what is not pretended."""
    left_out = [item for item in items if any(part in item.nodeid for part in NOT_PRETENDED)]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]
