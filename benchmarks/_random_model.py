"""A Qwen3 model with random weights in plain torch, for measuring what its work takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Shape:
    """Of a Qwen3 model; from the `config.json` of its repository on the model hub."""

    name: str
    layers: int
    hidden: int
    heads: int
    groups: int  # heads of keys and values
    head: int
    inner: int
    vocabulary: int
    tied: bool  # the output matrix is the embedding

    @property
    def parameters(self) -> int:
        """All of them."""
        attention = self.hidden * self.head * (2 * self.heads + 2 * self.groups) + 2 * self.head
        layer = attention + 3 * self.hidden * self.inner + 2 * self.hidden
        tables = self.vocabulary * self.hidden * (1 if self.tied else 2)
        return self.layers * layer + tables + self.hidden


SHAPES = {
    "qwen3": (
        Shape("Qwen3-32B", 64, 5120, 64, 8, 128, 25600, 151936, False),
        Shape("Qwen3-1.7B", 28, 2048, 16, 8, 128, 6144, 151936, True),
    ),
    "tiny": (
        Shape("tiny large", 4, 128, 8, 2, 16, 256, 1024, False),
        Shape("tiny small", 1, 32, 4, 2, 8, 64, 1024, True),
    ),
}
THETA = 1e6
EPSILON = 1e-6


@dataclass
class Layer:
    """One layer's weights."""

    before: Any
    qkv: Any
    q_norm: Any
    k_norm: Any
    out: Any
    after: Any
    gate_up: Any
    down: Any


@dataclass
class Model:
    """Weights, and room for the keys and values of some sequences."""

    shape: Shape
    embedding: Any
    layers: list[Layer]
    norm: Any
    head: Any
    turns: tuple[Any, Any]  # cosines and sines of each position
    cache: Any = None  # layer, key or value, sequence, group, position, …


def build(shape: Shape, *, device: str, dtype: Any, length: int) -> Model:
    """Random weights, scaled so that nothing overflows, for texts up to this length."""
    import torch

    def matrix(rows: int, columns: int) -> Any:
        made = torch.empty(rows, columns, device=device, dtype=dtype)
        return made.normal_(std=columns**-0.5)

    def ones(size: int) -> Any:
        return torch.ones(size, device=device, dtype=dtype)

    embedding = matrix(shape.vocabulary, shape.hidden)
    layers = [
        Layer(
            ones(shape.hidden),
            matrix((shape.heads + 2 * shape.groups) * shape.head, shape.hidden),
            ones(shape.head),
            ones(shape.head),
            matrix(shape.hidden, shape.heads * shape.head),
            ones(shape.hidden),
            matrix(2 * shape.inner, shape.hidden),
            matrix(shape.hidden, shape.inner),
        )
        for _ in range(shape.layers)
    ]
    head = embedding if shape.tied else matrix(shape.vocabulary, shape.hidden)
    places = torch.arange(length, device=device, dtype=torch.float32)
    steps = torch.arange(0, shape.head, 2, device=device, dtype=torch.float32) / shape.head
    angles = torch.outer(places, THETA**-steps).repeat(1, 2)
    turns = (angles.cos().to(dtype), angles.sin().to(dtype))
    return Model(shape, embedding, layers, ones(shape.hidden), head, turns)


def make_room(model: Model, batch: int, length: int) -> None:
    """For the keys and values of so many texts; those there were are gone."""
    shape = model.shape
    model.cache = None  # both at once may not fit
    size = (shape.layers, 2, batch, shape.groups, length, shape.head)
    model.cache = model.norm.new_zeros(size)


def mask_of(model: Model, tokens: int, start: int) -> Any:
    """What each new token may not see, for every query of a group; None for a single token."""
    import torch

    if tokens == 1:
        return None
    hidden = torch.full((tokens, start + tokens), float("-inf"), device=model.norm.device)
    rows = hidden.triu(start + 1).to(model.norm.dtype)
    return rows.repeat(model.shape.heads // model.shape.groups, 1)


def forward(model: Model, ids: Any, start: int, mask: Any) -> Any:
    """Scores behind the last of these tokens, which stand at `start`: sequence, vocabulary.

    The queries that share keys are put side by side, so that keys and values are read once.
    """
    from torch import cat
    from torch.nn import functional

    shape = model.shape
    batch, tokens = ids.shape
    end, wide = start + tokens, shape.heads // shape.groups * tokens
    cosines, sines = (table[start:end] for table in model.turns)

    def norm(values: Any, weight: Any) -> Any:
        return functional.rms_norm(values, weight.shape, weight, EPSILON)

    def turned(values: Any) -> Any:
        left, right = values.chunk(2, -1)
        return values * cosines + cat((-right, left), -1) * sines

    stream = functional.embedding(ids, model.embedding)
    for layer, cache in zip(model.layers, model.cache, strict=True):
        mixed = functional.linear(norm(stream, layer.before), layer.qkv)
        mixed = mixed.view(batch, tokens, -1, shape.head).transpose(1, 2)
        query, key, value = mixed.split([shape.heads, shape.groups, shape.groups], 1)
        query = turned(norm(query, layer.q_norm)).reshape(batch, shape.groups, wide, shape.head)
        cache[0, :, :, start:end] = turned(norm(key, layer.k_norm))
        cache[1, :, :, start:end] = value
        keys, values = cache[:, :, :, :end]
        seen = functional.scaled_dot_product_attention(query, keys, values, attn_mask=mask)
        seen = seen.reshape(batch, shape.heads, tokens, shape.head).transpose(1, 2)
        stream = stream + functional.linear(seen.reshape(batch, tokens, -1), layer.out)
        gate, up = functional.linear(norm(stream, layer.after), layer.gate_up).chunk(2, -1)
        stream = stream + functional.linear(functional.silu(gate) * up, layer.down)
    return functional.linear(norm(stream[:, -1], model.norm), model.head)
