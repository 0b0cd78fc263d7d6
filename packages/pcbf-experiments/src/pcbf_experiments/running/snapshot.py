"""Snapshots: what acting and the return law need of a trained agent, in one safetensors file.

A snapshot holds the parameters, online and frozen, and the scaling of observations as tensors, and as JSON in the
header the config of the run, the task's spec, the seed, the step and a hash of all of it. It is read without executing
anything, and needs no data.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from safetensors import SafetensorError, numpy, safe_open

from pcbf_baselines.registry import make_agent
from pcbf_core.agent import Agent
from pcbf_core.learner import LearnerState
from pcbf_core.proposing import takes_proposal
from pcbf_core.types import TaskSpec
from pcbf_experiments.data.scaling import Scaling
from pcbf_experiments.plugins import load_plugins
from pcbf_experiments.running.trees import named_leaves
from pcbf_records.canonical import canonical_json
from pcbf_records.files import atomic_write
from pcbf_records.runs import steps_to_judge

FORMAT = "pcbf-snapshot-1"
HEADER = "pcbf"
STATISTICS = ("observation_mean", "observation_std")
MAX_BYTES = 2**32  # larger files are not ours


class SnapshotError(ValueError):
    """A snapshot that cannot be used; the message names the file, the fault and the remedy."""


@dataclass(frozen=True)
class Snapshot:
    """A trained agent, ready to act.

    Attributes:
      state: holds the online and frozen parameters and coefficients only; enough to act and to read the return law.
      config: everything that decided the run.
    """

    agent: Agent
    state: LearnerState
    spec: TaskSpec
    scaling: Scaling
    config: Mapping[str, Any]
    seed: int
    step: int

    @property
    def task(self) -> str:
        return self.config["task"]

    @property
    def method(self) -> str:
        return self.config["method"]

    @property
    def number(self) -> int:
        """Which snapshot of its run it is, from 0; 0 for a step that the run does not stop at."""
        run = self.config["run"]
        steps = steps_to_judge(run["steps"], run["eval_every"], run.get("eval_from", 0))
        return steps.index(self.step) if self.step in steps else 0


def acting_state(state: LearnerState) -> LearnerState:
    """What of a learner's state acting and the return law need."""
    return state.replace(target_params={}, opt_state=())


def save_snapshot(
    path: Path | str, state: LearnerState, *, scaling: Scaling, config: Mapping[str, Any], seed: int, step: int
) -> None:
    """Write what acting needs of `state`, one learner's; the same arguments give the same bytes.

    safetensors writes several metadata in any order, so there is one.
    """
    leaves = named_leaves(acting_state(state))
    tensors = {name: np.array(leaf, order="C") for name, leaf in leaves.items()}
    tensors |= {name: np.asarray(value) for name, value in statistics(scaling).items()}
    header = {
        "format": FORMAT,
        "config": config,
        "seed": seed,
        "step": step,
        "reward_scale": scaling.reward_scale,
    }
    header["sha256"] = _digest(header, tensors)
    with atomic_write(path, "wb") as file:
        file.write(numpy.save(tensors, metadata={HEADER: canonical_json(header)}))


def statistics(scaling: Scaling) -> dict[str, np.ndarray]:
    """The arrays of a scaling, as far as it has them."""
    values = {name: getattr(scaling, name) for name in STATISTICS}
    return {name: value for name, value in values.items() if value is not None}


def load_snapshot(path: Path | str) -> Snapshot:
    """The agent of a snapshot; a file that is truncated, corrupt or something else is named with its remedy."""
    path = Path(path)
    header, tensors = _read(path)
    try:
        config, seed, step = dict(header["config"]), int(header["seed"]), int(header["step"])
        spec = spec_from(config["spec"])
        load_plugins()
        agent = make_agent(config["method"], spec, config.get("method_settings", {}))
        scaling = Scaling(*(tensors.pop(name, None) for name in STATISTICS), reward_scale=float(header["reward_scale"]))
        template = acting_state(jax.eval_shape(partial(blank_state, agent), jax.random.key(0)))
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, IndexError) as error:
        raise SnapshotError(
            f"{path} cannot be used here ({error}); make it again with the version of pcbf that reads it."
        ) from error
    wanted = named_leaves(template)
    faults = [
        f"{name} is {_form(tensors.get(name))}, expected {_form(leaf)}"
        for name, leaf in sorted({**dict.fromkeys(tensors), **wanted}.items())
        if _form(tensors.get(name)) != _form(leaf)
    ]
    if faults:
        raise SnapshotError(
            f"{path} does not fit {config['method']} as its config describes it: {'; '.join(faults[:3])}. "
            "Its code is another, or it was edited; train again."
        )
    leaves = [jnp.asarray(tensors[name]) for name in wanted]
    state = jax.tree.unflatten(jax.tree.structure(template), leaves)
    return Snapshot(agent, state, spec, scaling, config, seed, step)


def blank_state(agent: Agent, key: Array) -> LearnerState:
    """A state of the form that a learner of this agent has, to be filled from a file."""
    state = agent.init(key)
    return agent.with_proposal(state, agent.proposal.init_params(key)) if takes_proposal(agent) else state


def _form(leaf: Any) -> str:
    return "absent" if leaf is None else f"{leaf.dtype}{list(leaf.shape)}"


def _read(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    remedy = "delete it and train again, or restore a copy of it."
    if not path.is_file():
        raise SnapshotError(f"{path} does not exist; train first, or pass the path of a snapshot.")
    if path.stat().st_size > MAX_BYTES:
        raise SnapshotError(f"{path} has {path.stat().st_size} bytes, more than a snapshot of ours; pass another file.")
    try:
        with safe_open(path, framework="numpy") as file:
            said = (file.metadata() or {}).get(HEADER)
            tensors = {name: file.get_tensor(name) for name in file.keys()} if said else {}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError, TypeError, AttributeError) as error:
        raise SnapshotError(f"{path} is not a whole safetensors file ({error}); {remedy}") from error
    try:
        header = json.loads(said or "")
    except (ValueError, RecursionError) as error:
        raise SnapshotError(f"{path} is a safetensors file, but no snapshot of pcbf; pass another file.") from error
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        found = header.get("format") if isinstance(header, dict) else type(header).__name__
        raise SnapshotError(f"{path} has format {found!r}, this version reads {FORMAT!r}; train again.")
    try:
        is_whole = header.pop("sha256", None) == _digest(header, tensors)
    except ValueError:  # numbers that JSON does not know
        is_whole = False
    if not is_whole:
        raise SnapshotError(f"{path} is corrupt: its content does not match its hash; {remedy}")
    return header, tensors


def _digest(header: Mapping[str, Any], tensors: Mapping[str, np.ndarray]) -> str:
    """SHA-256 of all that a snapshot says and holds."""
    digest = hashlib.sha256(canonical_json(header).encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {_form(tensor)}".encode())
        digest.update(tensor.tobytes())
    return digest.hexdigest()


def spec_from(values: Mapping[str, Any]) -> TaskSpec:
    """A task's spec from its JSON values."""
    return TaskSpec(
        observation_shape=tuple(values["observation_shape"]),
        action_dim=values["action_dim"],
        num_states=values["num_states"],
        return_range=None if values["return_range"] is None else tuple(values["return_range"]),
    )
