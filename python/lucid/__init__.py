"""lucid: whole training steps, compiled into one native executable."""

import os as _os

from lucid import _C
from lucid._C import (
    ArgumentTypeError,
    AutogradError,
    DeviceError,
    DeviceUnavailableError,
    DtypeError,
    Error,
    Generator,
    InternalError,
    OutOfMemoryError,
    OutOfRangeError,
    ShapeError,
    Tensor,
    TraceError,
    UnsupportedError,
    UserError,
    default_generator,
    device,
    dtype,
    get_default_dtype,
    get_num_threads,
    set_default_dtype,
    set_num_threads,
)
from lucid.autograd import (
    enable_grad,
    inference_mode,
    is_grad_enabled,
    no_grad,
    set_grad_enabled,
)
from lucid.functions import *  # noqa: F403  # one list of functions: theirs
from lucid.functions import __all__ as _functions
from lucid.functions.aliases import accept_aliases as _accept_aliases
from lucid.functions.arguments import get_default_device, set_default_device
from lucid.functions.tensor_methods import attach as _attach

_C._set_package_folder(_os.path.dirname(__file__) + _os.sep)
_attach()
_accept_aliases(globals())

from lucid import amp, autograd, compile, linalg, metal, nn, optim, utils  # noqa: E402
from lucid.amp import autocast, get_autocast_dtype, is_autocast_enabled  # noqa: E402
from lucid.serialization import (  # noqa: E402
    load,
    load_safetensors,
    save,
    save_safetensors,
)
from lucid.settings import (  # noqa: E402
    are_deterministic_algorithms_enabled,
    get_float32_matmul_precision,
    set_float32_matmul_precision,
    use_deterministic_algorithms,
)

__version__ = "0.1.0"

__all__ = [
    *_functions,
    "are_deterministic_algorithms_enabled",
    "get_float32_matmul_precision",
    "set_float32_matmul_precision",
    "use_deterministic_algorithms",
    "ArgumentTypeError",
    "AutogradError",
    "DeviceError",
    "DeviceUnavailableError",
    "DtypeError",
    "Error",
    "Generator",
    "InternalError",
    "OutOfMemoryError",
    "OutOfRangeError",
    "ShapeError",
    "Tensor",
    "TraceError",
    "UnsupportedError",
    "UserError",
    "amp",
    "autocast",
    "autograd",
    "compile",
    "default_generator",
    "device",
    "enable_grad",
    "get_autocast_dtype",
    "get_default_device",
    "get_default_dtype",
    "get_num_threads",
    "inference_mode",
    "is_autocast_enabled",
    "is_grad_enabled",
    "linalg",
    "load",
    "load_safetensors",
    "nn",
    "no_grad",
    "optim",
    "save",
    "save_safetensors",
    "set_default_device",
    "set_default_dtype",
    "set_grad_enabled",
    "set_num_threads",
    "utils",
]
