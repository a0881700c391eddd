"""Train a small language model on the source of Python's library, character by character.

A decoder as in use today: rotary positions, grouped-query attention, RMSNorm, SwiGLU. The whole
step (forward, loss, backward, clipping, AdamW) is one executable; its first steps are compared with
eager code, whose losses must be equal bit for bit. Prints losses and a sample of the moving average
of the weights.
"""

from __future__ import annotations

import argparse
import inspect
import sys
import textwrap
import time

import lucid
import lucid.nn as nn
import lucid.nn.functional as F
import lucid.optim as optim
from lucid import Tensor
from lucid.compile import fused_step
from lucid.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

WIDTH, LAYERS, HEADS, KV_HEADS, CONTEXT, BATCH = 96, 3, 6, 2, 64, 16
COMPARED = 5


def rotary(size: int, count: int) -> tuple[Tensor, Tensor]:
    """Cosines and sines (count, size) of the angles that turn pairs (i, i + size / 2).

    Source: Su and others 2021, arXiv:2104.09864, equation 34.
    """
    speed = 10000.0 ** (-lucid.arange(0, size, 2).float() / size)
    angles = lucid.outer(lucid.arange(count).float(), speed)
    return lucid.cat([angles, angles], dim=-1).cos(), lucid.cat([angles, angles], dim=-1).sin()


def turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Queries or keys (N, H, T, D), turned by their positions."""
    first, second = x.chunk(2, dim=-1)
    return x * cos + lucid.cat([-second, first], dim=-1) * sin


class Attention(nn.Module):
    """Causal attention; each key and value serves several queries."""

    def __init__(self) -> None:
        super().__init__()
        self.size = WIDTH // HEADS
        self.query = nn.Linear(WIDTH, HEADS * self.size, bias=False)
        self.key = nn.Linear(WIDTH, KV_HEADS * self.size, bias=False)
        self.value = nn.Linear(WIDTH, KV_HEADS * self.size, bias=False)
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        q, k, v = (
            layer(x).unflatten(-1, (-1, self.size)).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        q, k = turned(q, cos, sin), turned(k, cos, sin)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.out(y.transpose(1, 2).flatten(-2))


class Block(nn.Module):
    """Attention, then a gated hidden layer, each behind a norm and added to its input."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)])
        self.attention = Attention()
        self.gate, self.up = (nn.Linear(WIDTH, 3 * WIDTH, bias=False) for _ in range(2))
        self.down = nn.Linear(3 * WIDTH, WIDTH, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        x = x + self.attention(self.norms[0](x), cos, sin)
        h = self.norms[1](x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Decoder(nn.Module):
    """Characters (N, T) to logits (N, T, characters); input and output share their weight."""

    cos: Tensor
    sin: Tensor

    def __init__(self, characters: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(characters, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.RMSNorm(WIDTH)
        self.head = nn.Linear(WIDTH, characters, bias=False)
        nn.init.normal_(self.head.weight, std=WIDTH**-0.5)
        self.embedding.weight = self.head.weight
        for name, table in zip(("cos", "sin"), rotary(WIDTH // HEADS, CONTEXT), strict=True):
            self.register_buffer(name, table, persistent=False)

    def forward(self, characters: Tensor) -> Tensor:
        count = characters.shape[1]
        x = self.embedding(characters)
        for block in self.blocks:
            x = block(x, self.cos[:count], self.sin[:count])
        return self.head(self.norm(x))


def loss_of(logits: Tensor, wanted: Tensor) -> Tensor:
    """Mean cross-entropy in nats a character."""
    return F.cross_entropy(logits.flatten(0, 1), wanted.flatten())


def batch(text: Tensor, generator: lucid.Generator) -> tuple[Tensor, Tensor]:
    """Pieces of the text, and the same one character on."""
    starts = lucid.randint(0, len(text) - CONTEXT, (BATCH, 1), generator=generator)
    pieces = text[starts + lucid.arange(CONTEXT + 1)]
    return pieces[:, :-1], pieces[:, 1:]


def train(
    text: Tensor, characters: int, steps: int, total: int, fused: bool
) -> tuple[AveragedModel, list[float]]:
    """The moving average of the model, and the losses of ``steps`` of a schedule of ``total``."""
    lucid.manual_seed(0)
    generator = lucid.Generator(1)
    model = Decoder(characters)
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.97))
    optimizer = optim.AdamW(model.parameters(), lr=4e-3, betas=(0.9, 0.95), weight_decay=0.1)
    schedule = optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, total_steps=total + 1)
    step = fused_step(model, loss_of, optimizer, clip_norm=1.0, fallback="error")
    losses = []
    for _ in range(steps):
        x, wanted = batch(text, generator)
        if fused:
            loss = step(x, wanted)
        else:
            optimizer.zero_grad()
            loss = loss_of(model(x), wanted)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        schedule.step()
        average.update_parameters(model)
        losses.append(loss.item())
    return average, losses


def sample(model: nn.Module, start: Tensor, count: int) -> Tensor:
    """``start`` (1, T) and ``count`` characters more, each drawn from the ten likeliest."""
    text = start
    with lucid.no_grad():
        for _ in range(count):
            logits = model(text[:, -CONTEXT:])[0, -1]
            likely, places = logits.topk(10)
            drawn = lucid.multinomial((likely / 0.7).softmax(-1), 1)
            text = lucid.cat([text, places[drawn][None]], dim=1)
    return text


def main() -> int:
    """Run the example; 0 if eager and compiled losses are equal and the loss has fallen."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=400)
    options = parser.parse_args()
    source = inspect.getsource(argparse) + inspect.getsource(textwrap) + inspect.getsource(inspect)
    alphabet = sorted(set(source))
    text = lucid.tensor([alphabet.index(c) for c in source])
    compared = min(COMPARED, options.steps)
    _, eager = train(text, len(alphabet), compared, options.steps, fused=False)
    start = time.perf_counter()
    average, losses = train(text, len(alphabet), options.steps, options.steps, fused=True)
    seconds = time.perf_counter() - start
    equal = eager == losses[:compared]
    print(f"{len(text):,} characters, {sum(p.numel() for p in average.parameters()):,} parameters")
    print(f"loss {losses[0]:.3f} to {losses[-1]:.3f} in {options.steps} steps, {seconds:.1f} s")
    print(f"first {compared} losses equal those of eager code bit for bit: {equal}")
    found = sample(average.eval(), text[None, :16], 240)[0]
    print(textwrap.indent("".join(alphabet[i] for i in found.tolist()), "  | "))
    return 0 if equal and losses[-1] < losses[0] else 1


if __name__ == "__main__":
    sys.exit(main())
