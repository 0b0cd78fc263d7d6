"""All methods by name, PCBF included; every loop over methods reads this."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pcbf_baselines.bc import BehaviorCloning, BehaviorCloningConfig
from pcbf_baselines.c51 import C51, C51Config
from pcbf_baselines.codac import CODAC, CODACConfig
from pcbf_baselines.floq import FloQ, FloQConfig
from pcbf_baselines.fql import FQL, FQLConfig
from pcbf_baselines.iql import IQL, IQLConfig
from pcbf_baselines.iqn import IQN, IQNConfig
from pcbf_baselines.random_policy import RandomPolicy, RandomPolicyConfig
from pcbf_baselines.value_flows import ValueFlows, ValueFlowsConfig
from pcbf_core.agent import Agent
from pcbf_core.config import check_choice, config_from
from pcbf_core.pcbf import PCBF, PCBFConfig
from pcbf_core.types import TaskSpec


@dataclass(frozen=True)
class Method:
    """One method.

    Attributes:
      name: how commands and records call it.
      title: how tables and figures call it.
      config, agent: its settings and its agent, built as `agent(config, spec)`.
      visual: whether the paper runs it on images.
      version: raised when a change makes earlier runs of the method incomparable.
      variant: the named form of its config that settings start from (`PCBFConfig.variant`); empty for its defaults.
    """

    name: str
    title: str
    config: type[Any]
    agent: type[Any]
    visual: bool
    version: int = 1
    variant: str = ""


METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method("pcbf", "PCBF", PCBFConfig, PCBF, visual=True, variant="paper"),
        Method("pcbf_flow", "PCBF flow", PCBFConfig, PCBF, visual=True),
        Method("value_flows", "Value Flows", ValueFlowsConfig, ValueFlows, visual=True),
        Method("floq", "FloQ", FloQConfig, FloQ, visual=False),
        Method("fql", "FQL", FQLConfig, FQL, visual=True),
        Method("iql", "IQL", IQLConfig, IQL, visual=True),
        Method("iqn", "IQN", IQNConfig, IQN, visual=True),
        Method("codac", "CODAC", CODACConfig, CODAC, visual=False, version=2),
        Method("c51", "C51", C51Config, C51, visual=False),
        Method("bc", "BC", BehaviorCloningConfig, BehaviorCloning, visual=True),
        Method("random", "Random", RandomPolicyConfig, RandomPolicy, visual=True),
    )
}
"""The methods by name, those of plugins included once they are loaded."""


def register_method(method: Method) -> Method:
    """`method`, which `make_agent` and the commands know from now on; the name of another method raises."""
    if METHODS.setdefault(method.name, method) != method:
        raise ValueError(f"a method called {method.name!r} exists with other values; choose another name.")
    return method


def make_config(name: str, settings: Mapping[str, Any] | None = None) -> Any:
    """The method's config from plain settings; `variant` names another form of PCBF (`PCBFConfig.variant`)."""
    check_choice("method", name, METHODS)
    config, values = METHODS[name].config, dict(settings or {})
    if not hasattr(config, "variant"):
        return config_from(config, values)
    variant = values.pop("variant", METHODS[name].variant)
    if variant == "":
        return config_from(config, values)
    check_choice("variant", variant, config.variants)
    return config.variant(variant, **values)


def make_agent(name: str, spec: TaskSpec, settings: Mapping[str, Any] | None = None) -> Agent:
    """The agent of a method for a task; an unknown method or setting is answered with the nearest."""
    config = make_config(name, settings)
    return METHODS[name].agent(config, spec)
