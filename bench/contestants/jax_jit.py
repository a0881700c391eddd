"""JAX with loss, gradients and update in one jitted function; images as (N, H, W, C)."""

from __future__ import annotations

from collections.abc import Callable
from importlib import metadata
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import workloads
from jax import lax

jax.config.update("jax_platforms", "cpu")

Parameters = dict[str, jax.Array]


def _linear(p: Parameters, name: str, x: jax.Array) -> jax.Array:
    y = x @ p[f"{name}.weight"].T
    return y + p[f"{name}.bias"] if f"{name}.bias" in p else y


def _layer_norm(p: Parameters, name: str, x: jax.Array) -> jax.Array:
    centred = x - x.mean(-1, keepdims=True)
    scale = lax.rsqrt(jnp.square(centred).mean(-1, keepdims=True) + 1e-5)
    return centred * scale * p[f"{name}.weight"] + p[f"{name}.bias"]


def _convolution(
    p: Parameters, name: str, x: jax.Array, padding: int, stride: int = 1
) -> jax.Array:
    layout = ("NHWC", "HWIO", "NHWC")
    edges, strides = [(padding, padding)] * 2, (stride, stride)
    y = lax.conv_general_dilated(x, p[f"{name}.weight"], strides, edges, dimension_numbers=layout)
    return y + p[f"{name}.bias"] if f"{name}.bias" in p else y


def _batch_norm(p: Parameters, name: str, x: jax.Array) -> jax.Array:
    """With the statistics of the batch; the running ones are not kept here."""
    centred = x - x.mean((0, 1, 2))
    scale = lax.rsqrt(jnp.square(centred).mean((0, 1, 2)) + 1e-5)
    return centred * (scale * p[f"{name}.weight"]) + p[f"{name}.bias"]


def _max_pool(x: jax.Array) -> jax.Array:
    window = (1, 2, 2, 1)
    return lax.reduce_window(x, -jnp.inf, lax.max, window, window, "VALID")


def _cross_entropy(logits: jax.Array, target: jax.Array) -> jax.Array:
    chosen = jnp.take_along_axis(logits, target[:, None], -1)[:, 0]
    return (jax.nn.logsumexp(logits, -1) - chosen).mean()


def _gelu(x: jax.Array) -> jax.Array:
    return jax.nn.gelu(x, approximate=False)


def _mlp(p: Parameters, x: jax.Array) -> jax.Array:
    return _linear(p, "2", jax.nn.relu(_linear(p, "0", x)))


def _mlp_wide(p: Parameters, x: jax.Array) -> jax.Array:
    for name in ("0", "2", "4"):
        x = _gelu(_linear(p, name, x))
    return _linear(p, "6", x)


def _deep(p: Parameters, x: jax.Array) -> jax.Array:
    for i in range(workloads.DEEP.blocks):
        x = _linear(p, f"{i}.2", _gelu(_linear(p, f"{i}.0", x)))
        x = _layer_norm(p, f"{i}.3", x)
    return x


def _resnet(p: Parameters, x: jax.Array) -> jax.Array:
    x = jax.nn.relu(_batch_norm(p, "stem_norm", _convolution(p, "stem", x, padding=1)))
    for block in workloads.RESNET_BLOCKS:
        name, stride = block.name, block.stride
        y = _convolution(p, f"{name}.first", x, padding=1, stride=stride)
        y = jax.nn.relu(_batch_norm(p, f"{name}.first_norm", y))
        y = _batch_norm(p, f"{name}.second_norm", _convolution(p, f"{name}.second", y, padding=1))
        if block.has_projection:
            x = _convolution(p, f"{name}.project", x, padding=0, stride=stride)
            x = _batch_norm(p, f"{name}.project_norm", x)
        x = jax.nn.relu(x + y)
    return _linear(p, "head", x.mean((1, 2)))


def _lenet(p: Parameters, x: jax.Array) -> jax.Array:
    x = _max_pool(jax.nn.relu(_convolution(p, "0", x, padding=2)))
    x = _max_pool(jax.nn.relu(_convolution(p, "3", x, padding=0)))
    x = x.reshape(x.shape[0], -1)
    x = jax.nn.relu(_linear(p, "7", x))
    return _linear(p, "11", jax.nn.relu(_linear(p, "9", x)))


def _attention(p: Parameters, name: str, x: jax.Array, heads: int) -> jax.Array:
    batch, tokens, width = x.shape
    shape = (batch, tokens, heads, width // heads)
    parts = jnp.split(_linear(p, f"{name}.qkv", x), 3, -1)
    q, k, v = (part.reshape(shape).transpose(0, 2, 1, 3) for part in parts)
    scores = q @ k.swapaxes(-1, -2) / (width // heads) ** 0.5
    allowed = jnp.tril(jnp.ones((tokens, tokens), bool))
    weights = jax.nn.softmax(jnp.where(allowed, scores, -jnp.inf), -1)
    out = (weights @ v).transpose(0, 2, 1, 3).reshape(x.shape)
    return _linear(p, f"{name}.project", out)


def _gpt(p: Parameters, tokens: jax.Array) -> jax.Array:
    sizes = workloads.GPT_MINI
    x = p["token.weight"][tokens] + p["position"]
    for i in range(sizes.layers):
        name = f"blocks.{i}"
        x = x + _attention(p, name, _layer_norm(p, f"{name}.norm_attention", x), sizes.heads)
        hidden = _linear(p, f"{name}.up", _layer_norm(p, f"{name}.norm_mlp", x))
        x = x + _linear(p, f"{name}.down", _gelu(hidden))
    return _linear(p, "head", _layer_norm(p, "norm", x)).reshape(-1, sizes.vocabulary)


def _lstm(p: Parameters, x: jax.Array) -> jax.Array:
    bias = p["lstm.bias_ih_l0"] + p["lstm.bias_hh_l0"]
    projected = (x @ p["lstm.weight_ih_l0"].T + bias).transpose(1, 0, 2)
    weight = p["lstm.weight_hh_l0"].T

    def step(state: tuple[jax.Array, jax.Array], sums: jax.Array) -> Any:
        h, c = state
        i, f, g, o = jnp.split(sums + h @ weight, 4, -1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        return (jax.nn.sigmoid(o) * jnp.tanh(c), c), None

    zeros = jnp.zeros((x.shape[0], workloads.LSTM.hidden), x.dtype)
    (h, _), _ = lax.scan(step, (zeros, zeros), projected)
    return _linear(p, "head", h)


_MODELS: dict[str, Callable[[Parameters, jax.Array], jax.Array]] = {
    "mlp_tiny": _mlp,
    "mlp_small": _mlp,
    "mlp_wide": _mlp_wide,
    "lenet": _lenet,
    "resnet_small": _resnet,
    "gpt_mini": _gpt,
    "deep_bottleneck": _deep,
    "lstm": _lstm,
}


def _channels_last(name: str, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A parameter of lenet or resnet_small for images as (N, H, W, C)."""
    if array.ndim == 4:
        return array.transpose(2, 3, 1, 0)
    if name == "7.weight":  # of lenet: its inputs are the flattened image of 16 channels
        return array.reshape(-1, 16, 5, 5).transpose(0, 2, 3, 1).reshape(-1, 400)
    return array


def _arrays(workload: str) -> tuple[Parameters, jax.Array, jax.Array]:
    start = workloads.parameters(workload)
    x, target = workloads.inputs(workload)
    if workload in workloads.IMAGES:
        start = {name: _channels_last(name, array) for name, array in start.items()}
        x = x.transpose(0, 2, 3, 1)
    parameters = {name: jnp.asarray(array) for name, array in start.items()}
    return parameters, jnp.asarray(x), jnp.asarray(target.reshape(-1))


def _sgd(p: Parameters, state: Any, gradients: Parameters) -> tuple[Parameters, Any]:
    momentum = {name: 0.9 * state[name] + gradients[name] for name in p}
    return {name: p[name] - 1e-4 * momentum[name] for name in p}, momentum


def _adamw(p: Parameters, state: Any, gradients: Parameters) -> tuple[Parameters, Any]:
    first, second, count = state
    count = count + 1
    first = {n: 0.9 * first[n] + 0.1 * gradients[n] for n in p}
    second = {n: 0.999 * second[n] + 0.001 * jnp.square(gradients[n]) for n in p}
    rate = 1e-5
    unbias_first, unbias_second = 1 - 0.9**count, 1 - 0.999**count

    def updated(name: str) -> jax.Array:
        scale = jnp.sqrt(second[name] / unbias_second) + 1e-8
        return p[name] * (1 - rate * 0.01) - rate * (first[name] / unbias_first) / scale

    return {name: updated(name) for name in p}, (first, second, count)


def _zeros(p: Parameters) -> Parameters:
    return {name: jnp.zeros_like(array) for name, array in p.items()}


def prepare(workload: str, mode: str) -> Callable[[], Any]:
    model = _MODELS[workload]
    parameters, x, target = _arrays(workload)
    gradients_of = jax.value_and_grad(lambda p, x, target: _cross_entropy(model(p, x), target))
    if mode == "grads":
        compiled = jax.jit(gradients_of)

        def step() -> jax.Array:
            loss, _ = jax.block_until_ready(compiled(parameters, x, target))
            return loss

        return step

    update = _sgd if mode == "sgd" else _adamw

    def whole_step(p: Parameters, state: Any, x: jax.Array, target: jax.Array) -> Any:
        loss, gradients = gradients_of(p, x, target)
        return loss, *update(p, state, gradients)

    compiled_update = jax.jit(whole_step, donate_argnums=(0, 1))
    state: Any = _zeros(parameters)
    if mode == "adamw":
        state = (state, _zeros(parameters), jnp.float32(0))
    held: Any = (parameters, state)

    def update_step() -> jax.Array:
        nonlocal held
        loss, *after = jax.block_until_ready(compiled_update(*held, x, target))
        held = tuple(after)
        return loss

    return update_step


def versions() -> dict[str, str]:
    return {name: metadata.version(name) for name in ("jax", "jaxlib")}
