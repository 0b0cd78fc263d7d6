"""Transitions on device, checked when they are put together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import Array
from jax.core import Tracer

from pcbf_core.types import TaskSpec, Transition

ACTION_LIMIT = 1.0 + 1e-3  # actions lie in [-1, 1], up to rounding


class Dataset(struct.PyTreeNode):
    """Transitions on device, sampled uniformly with replacement.

    Lists and NumPy arrays become JAX arrays. Data that cannot be right is refused: fields of different lengths, NaN or
    infinite values, a `terminal` outside [0, 1], actions outside [-1, 1].
    """

    transitions: Transition

    def __post_init__(self) -> None:
        fields = _concrete_fields(self.transitions)
        if fields is not None:
            _check(fields)
            object.__setattr__(self, "transitions", self.transitions.replace(**fields))

    @property
    def size(self) -> int:
        return self.transitions.reward.shape[0]

    def with_candidates(self, candidates: Array) -> Dataset:
        """The transitions with these candidates at s', (transitions, candidates, action_dim)."""
        return self.replace(transitions=self.transitions.replace(next_candidates=candidates))

    def sample(self, key: Array, batch_size: int) -> Transition:
        index = jax.random.randint(key, (batch_size,), 0, self.size)
        return jax.tree.map(lambda x: x[index], self.transitions)


def _concrete_fields(transitions: Any) -> dict[str, Array] | None:
    """The fields that are there, as arrays; None while JAX handles the dataset as a tree of something else."""
    if not isinstance(transitions, Transition):
        return None
    given = {name: value for name, value in vars(transitions).items() if value is not None}
    is_data = any(isinstance(value, list | np.ndarray | jax.Array) for value in given.values()) and all(
        isinstance(value, list | np.ndarray | jax.Array | np.generic | int | float) and not isinstance(value, Tracer)
        for value in given.values()
    )
    if not is_data:
        return None
    try:
        return {name: jnp.asarray(value) for name, value in given.items()}
    except (TypeError, ValueError) as error:
        raise ValueError(f"`Transition` holds what is not a rectangular array of numbers ({error}).") from error


def _check(fields: Mapping[str, Array]) -> None:
    lengths = {name: value.shape[0] if value.ndim else None for name, value in fields.items()}
    if None in lengths.values():
        single = next(name for name, length in lengths.items() if length is None)
        raise ValueError(f"`Transition.{single}` is a single value; pass one row per transition.")
    if len(set(lengths.values())) != 1:
        told = ", ".join(f"{name} {length}" for name, length in lengths.items())
        raise ValueError(f"`Transition` has fields of different lengths ({told}); pass one row per transition in each.")
    if not lengths["reward"]:
        raise ValueError("`Transition` has no rows; pass at least one transition.")
    for name in ("reward", "terminal"):
        if fields[name].ndim != 1:
            raise ValueError(f"`Transition.{name}` has shape {fields[name].shape}; pass one number per transition.")
    for name, value in fields.items():
        if jnp.issubdtype(value.dtype, jnp.floating) and (bad := int((~jnp.isfinite(value)).sum())):
            raise ValueError(f"`Transition.{name}` has {bad} NaN or infinite values; remove those transitions.")
    terminal = fields["terminal"]
    if bool(((terminal < 0) | (terminal > 1)).any()):
        raise ValueError(
            f"`Transition.terminal` lies in [{float(terminal.min()):g}, {float(terminal.max()):g}]; pass 1 where the "
            "return ends with the reward and 0 elsewhere."
        )
    for name in ("action", "next_action", "next_candidates"):
        if name in fields and fields[name].size and float(jnp.abs(fields[name]).max()) > ACTION_LIMIT:
            raise ValueError(
                f"`Transition.{name}` reaches {float(jnp.abs(fields[name]).max()):g}; actions lie in [-1, 1]: scale "
                "them there."
            )


def check_fits(spec: TaskSpec | None, source: Any) -> None:
    """Raise unless a dataset has the shapes that the learner's task says; other sources are not looked at."""
    if spec is None or not isinstance(source, Dataset):
        return
    shapes = {"observation": spec.observation_shape, "next_observation": spec.observation_shape}
    shapes |= {"action": (spec.action_dim,), "next_action": (spec.action_dim,)}
    for name, expected in shapes.items():
        value = getattr(source.transitions, name)
        if value is not None and value.shape[1:] != tuple(expected):
            raise ValueError(
                f"`Transition.{name}` has rows of shape {value.shape[1:]}, the learner's TaskSpec says "
                f"{tuple(expected)}; mend the data, or the TaskSpec."
            )
    if source.transitions.next_candidates is not None:
        _check_candidates(source.transitions.next_candidates, (source.size, spec.action_dim))


def check_candidates(candidates: Array, source: Any, num_learners: int) -> None:
    """Raise unless these are candidates at every s' of the dataset for each of several learners."""
    if not isinstance(source, Dataset):
        raise ValueError(
            f"`candidates` stand beside the rows of a `Dataset`, and the source is a {type(source).__name__}; leave "
            "them out: candidates are then drawn at every choice."
        )
    if candidates.shape[0] != num_learners:
        raise ValueError(
            f"`candidates` are for {candidates.shape[0]} learners, the states are {num_learners}; pass one table each."
        )
    _check_candidates(candidates[0], (source.size, source.transitions.action.shape[-1]))


def _check_candidates(candidates: Array, expected: tuple[int, int]) -> None:
    size, action_dim = expected
    if candidates.ndim != 3 or (candidates.shape[0], candidates.shape[2]) != expected:
        raise ValueError(
            f"candidates of shape {candidates.shape} are not ({size} transitions, candidates, {action_dim} numbers of "
            "an action); draw them with `draw_candidates` at the `next_observation` of this data."
        )
