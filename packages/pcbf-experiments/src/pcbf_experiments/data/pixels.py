"""Image data: frames kept once as uint8, stacked and shifted when a batch is drawn.

`FrameDataset` keeps the frames on the device; `HostFrames` keeps them in host memory and hands the
trainer blocks of batches that a thread prepares ahead. Both draw the same batches from the same keys.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import Array
from jaxtyping import Bool, Int, UInt8

from pcbf_core.agent import Learner
from pcbf_core.learner import LearnerState
from pcbf_core.precision import Precision, products_in
from pcbf_core.training import counted_scan
from pcbf_core.types import Metrics, Transition

Across = Literal["vmap", "map"]
NUM_FRAMES = 3
SHIFT_PAD = 3
SHIFT_PROBABILITY = 0.5
BLOCK_BYTES = 512 * 2**20


def stacked_rows(rows: Any, first_rows: Any, num_frames: int = NUM_FRAMES) -> list[Any]:
    """Rows of the frames that make up the observation at `rows`, oldest first, none before its episode's first row."""
    xp = jnp if isinstance(rows, Array) else np
    return [xp.maximum(rows - age, first_rows) for age in reversed(range(num_frames))]


def stack_frames(frames: Any, rows: Any, first_rows: Any, num_frames: int = NUM_FRAMES) -> Any:
    """Observations (*batch, height, width, channels · num_frames) at `rows`; works on device and host arrays."""
    xp = jnp if isinstance(frames, Array) else np
    return xp.concatenate([frames[row] for row in stacked_rows(rows, first_rows, num_frames)], axis=-1)


def random_shift(
    image: UInt8[Array, "batch height width channels"], offset: Int[Array, "batch 2"], pad: int = SHIFT_PAD
) -> UInt8[Array, "batch height width channels"]:
    """Images moved by up to `pad` pixels: padded with their edge, then cut back at `offset` in {0 … 2·pad}²."""
    padded = jnp.pad(image, ((0, 0), (pad, pad), (pad, pad), (0, 0)), mode="edge")

    def crop(one: Array, start: Array) -> Array:
        return jax.lax.dynamic_slice(one, (start[0], start[1], 0), image.shape[1:])

    return jax.vmap(crop)(padded, offset)


def augment(batch: Transition, key: Array) -> Transition:
    """The batch with every image shifted, or untouched: one coin of probability 1/2 decides for the whole batch.

    An observation and its successor move by the same offset.
    """
    coin_key, offset_key = jax.random.split(key)
    offset = jax.random.randint(offset_key, (batch.reward.shape[0], 2), 0, 2 * SHIFT_PAD + 1)
    is_shifted = jax.random.bernoulli(coin_key, SHIFT_PROBABILITY)
    offset = jnp.where(is_shifted, offset, SHIFT_PAD)
    return batch.replace(
        observation=random_shift(batch.observation, offset),
        next_observation=random_shift(batch.next_observation, offset),
    )


class FrameDataset(struct.PyTreeNode):
    """Image transitions on device.

    Attributes:
      frames: every frame once, episodes end to end.
      rows: for each transition the row of its frame; the next frame is the following row.
      first_rows: for each transition the row that starts its episode.
      transitions: what is not an image; its observations are empty.
    """

    frames: UInt8[Array, "rows height width channels"]
    rows: Int[Array, " transitions"]
    first_rows: Int[Array, " transitions"]
    transitions: Transition
    is_augmented: bool = struct.field(pytree_node=False, default=True)

    @property
    def size(self) -> int:
        return self.rows.shape[0]

    def sample(self, key: Array, batch_size: int) -> Transition:
        index, augment_key = draw_index(key, batch_size, self.size)
        rows, first_rows = self.rows[index], self.first_rows[index]
        batch = jax.tree.map(lambda x: x[index], self.transitions).replace(
            observation=stack_frames(self.frames, rows, first_rows),
            next_observation=stack_frames(self.frames, rows + 1, first_rows),
        )
        return augment(batch, augment_key) if self.is_augmented else batch


def draw_index(key: Array, batch_size: int, size: int) -> tuple[Array, Array]:
    """Transitions of a batch, uniform with replacement, and the key that shifts its images."""
    index_key, augment_key = jax.random.split(key)
    return jax.random.randint(index_key, (batch_size,), 0, size), augment_key


class HostFrames:
    """Image transitions in host memory, for data larger than the device.

    `train` has the semantics of `pcbf_core.training.train_chunk` on the equal `FrameDataset`: step i
    draws from fold_in(key, i), so neither chunks nor blocks change a run.
    """

    def __init__(self, dataset: FrameDataset) -> None:
        host = jax.tree.map(np.asarray, dataset)
        self.frames, self.rows, self.first_rows = host.frames, host.rows, host.first_rows
        self.transitions, self.is_augmented = host.transitions, dataset.is_augmented

    @property
    def size(self) -> int:
        return len(self.rows)

    def gather(self, index: np.ndarray) -> Transition:
        """Transitions (*batch) with their stacked images, on the host."""
        rows, first_rows = self.rows[index], self.first_rows[index]
        return jax.tree.map(lambda x: x[index], self.transitions).replace(
            observation=stack_frames(self.frames, rows, first_rows),
            next_observation=stack_frames(self.frames, rows + 1, first_rows),
        )

    def train(
        self,
        learner: Learner,
        states: LearnerState,
        keys: Array,
        start_step: int,
        *,
        num_steps: int,
        batch_size: int,
        across: Across = "vmap",
        count: int | None = None,
        precision: Precision = "float32",
    ) -> tuple[LearnerState, Metrics]:
        """`num_steps` updates of every learner; metrics come back as (learner, step)."""
        if (reuse := getattr(learner, "action_reuse", 1)) > 1:
            raise ValueError(
                f"`action_reuse={reuse}` draws from data on the device, and these images stream from the host; "
                "set `action_reuse=1`, or allow them more memory (--memory-budget)."
            )
        metrics: list[Any] = []
        size = self._block_size(num_steps, batch_size, len(keys))
        for start, made, batches in self._blocks(keys, start_step, count or num_steps, batch_size, size):
            states, block_metrics = _train_block(
                learner,
                states,
                batches,
                keys,
                start,
                made,
                num_steps=size,
                is_augmented=self.is_augmented,
                across=across,
                precision=precision,
            )
            metrics.append(jax.tree.map(lambda history, made=made: history[:, :made], block_metrics))
        return states, jax.tree.map(lambda *parts: jnp.concatenate(parts, axis=1), *metrics)

    def _block_size(self, num_steps: int, batch_size: int, num_learners: int) -> int:
        """Steps of a block, by the memory that its images take."""
        image_bytes = self.frames[0].nbytes * NUM_FRAMES * 2
        return int(np.clip(BLOCK_BYTES // (image_bytes * batch_size * num_learners), 1, num_steps))

    def _blocks(
        self, keys: Array, start_step: int, num_steps: int, batch_size: int, size: int
    ) -> Iterator[tuple[int, int, Transition]]:
        """Blocks of `size` batches (learner, step, batch, …) with how many of them count; gathered one ahead."""
        pieces = [(s, min(size, start_step + num_steps - s)) for s in range(start_step, start_step + num_steps, size)]

        def prepare(piece: tuple[int, int]) -> Transition:
            index = _block_index(keys, piece[0], num_steps=size, batch_size=batch_size, size=self.size)
            return jax.device_put(self.gather(np.asarray(index)))

        with ThreadPoolExecutor(max_workers=1) as pool:
            ahead = pool.submit(prepare, pieces[0])
            for number, piece in enumerate(pieces):
                batches = ahead.result()
                if number + 1 < len(pieces):
                    ahead = pool.submit(prepare, pieces[number + 1])
                yield *piece, batches


@partial(jax.jit, static_argnames=("num_steps", "batch_size", "size"))
def _block_index(keys: Array, start_step: int | Array, *, num_steps: int, batch_size: int, size: int) -> Array:
    """Transitions that `train_chunk` would draw, as (learner, step, batch)."""

    def one(key: Array, step: Array) -> Array:
        batch_key, _ = jax.random.split(jax.random.fold_in(key, step))
        return draw_index(batch_key, batch_size, size)[0]

    steps = start_step + jnp.arange(num_steps)
    return jax.vmap(lambda key: jax.vmap(lambda step: one(key, step))(steps))(keys)


@partial(
    jax.jit, static_argnames=("learner", "num_steps", "is_augmented", "across", "precision"), donate_argnames="states"
)
def _train_block(
    learner: Learner,
    states: LearnerState,
    batches: Transition,
    keys: Array,
    start_step: int | Array,
    count: int | Array,
    *,
    num_steps: int,
    is_augmented: bool,
    across: Across,
    precision: Precision,
) -> tuple[LearnerState, Metrics]:
    def one_learner(state: LearnerState, blocks: Transition, key: Array) -> tuple[LearnerState, Metrics]:
        def one_step(state: LearnerState, index: Array) -> tuple[LearnerState, Metrics]:
            batch = jax.tree.map(lambda x: x[index], blocks)
            batch_key, update_key = jax.random.split(jax.random.fold_in(key, start_step + index))
            augment_key = jax.random.split(batch_key)[1]
            return learner.update(state, augment(batch, augment_key) if is_augmented else batch, update_key)

        return counted_scan(one_step, state, count, num_steps)

    with products_in(precision):
        if across == "map":
            return jax.lax.map(lambda item: one_learner(*item), (states, batches, keys))
        return jax.vmap(one_learner)(states, batches, keys)


def frame_index(
    is_last: Bool[np.ndarray, " rows"],
) -> tuple[Int[np.ndarray, " transitions"], Int[np.ndarray, " transitions"]]:
    """Rows that start a transition and the first row of their episodes; no last row of an episode starts one."""
    starts = np.flatnonzero(np.concatenate([[True], is_last[:-1]]))
    first_rows = starts[np.cumsum(np.concatenate([[0], is_last[:-1]])).astype(int)]
    rows = np.flatnonzero(~is_last[:-1])
    return rows.astype(np.int32), first_rows[rows].astype(np.int32)
