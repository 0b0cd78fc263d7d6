"""What the commands share: exit codes, errors told in a line, options that several have."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pcbf_records.commands import whole_number
from pcbf_records.layout import RAW_DATA

if TYPE_CHECKING:
    from pcbf_experiments.evaluation import EvaluationSettings

EXIT_ERROR, EXIT_DIVERGED, EXIT_INTERRUPTED = 1, 3, 130


def keep_compiled_programs() -> None:
    """Have JAX keep compiled programs for the next start, by machine as a home directory may be shared.

    Called by commands before JAX is imported; what the user has set stays.
    """
    home = os.getenv("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", os.path.join(home, "pcbf", "jax", platform.node()))
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "0")


DETERMINISTIC = {"xla_gpu_deterministic_ops": "true", "xla_gpu_autotune_level": "0"}


def repeat_to_the_bit() -> None:
    """Have XLA use only operations of a GPU that repeat themselves, and the same ones in every process.

    Called by commands before JAX is imported; flags that the user has set stay.
    """
    said = os.environ.get("XLA_FLAGS", "")
    flags = [f"--{name}={value}" for name, value in DETERMINISTIC.items() if name not in said]
    os.environ["XLA_FLAGS"] = " ".join([said, *flags]).strip()


def compile_lightly() -> None:
    """Have XLA leave out the later passes of its compiler, for programs that run no longer than they compile.

    Called by commands of small networks before JAX is imported; a level that the user has set stays.
    """
    said = os.environ.get("XLA_FLAGS", "")
    if "xla_backend_optimization_level" not in said and "JAX_DISABLE_MOST_OPTIMIZATIONS" not in os.environ:
        os.environ["XLA_FLAGS"] = f"{said} --xla_backend_optimization_level=1".strip()


def guarded(body: Callable[[], int]) -> int:
    """Run a command; what a user can mend is told in a line, not in a traceback."""
    keep_compiled_programs()
    from pcbf_experiments.data.download import DatasetError
    from pcbf_experiments.running.errors import RunDiverged, RunError, RunStopped
    from pcbf_records.locks import LockedError

    try:
        return body()
    except RunStopped as error:
        print(error, file=sys.stderr)
        return 128 + error.number
    except RunDiverged as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_DIVERGED
    except (RunError, DatasetError, LockedError, ValueError, ModuleNotFoundError) as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_ERROR
    except OSError as error:
        print(f"error: {error}; once that is mended rerun to resume, finished work is skipped", file=sys.stderr)
        return EXIT_ERROR
    except KeyboardInterrupt:
        print("\nstopped; rerun to resume from the last checkpoint", file=sys.stderr)
        return EXIT_INTERRUPTED


def assignment(text: str) -> tuple[str, Any]:
    """("name", value) of "name=value"; the value is JSON where it can be, else text."""
    name, sign, value = text.partition("=")
    if not sign or not name:
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form name=value")
    constants = {"True": True, "False": False, "None": None}
    if value in constants:
        return name, constants[value]
    try:
        return name, json.loads(value)
    except json.JSONDecodeError as error:
        if value[:1] in tuple('[{("'):
            raise argparse.ArgumentTypeError(f"the value of {text!r} is not JSON ({error})") from error
        return name, value


def add_data_dir(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--data-dir", type=Path, default=Path(RAW_DATA), help="where datasets lie (default: %(default)s)"
    )


def add_evaluation_options(parser: argparse.ArgumentParser, *, num_workers: int) -> None:
    group = parser.add_argument_group("evaluation")
    group.add_argument(
        "--episodes", type=whole_number(), default=50, help="episodes per evaluation (default: %(default)s)"
    )
    group.add_argument("--slots", type=whole_number(), default=10, help="simulators in lockstep (default: %(default)s)")
    group.add_argument(
        "--episode-limit", type=whole_number(), help="cut episodes after so many steps (default: the task's own)"
    )
    group.add_argument(
        "--success-timing",
        choices=("pre", "post"),
        default="pre",
        help="judge OGBench success before the step (as rewards do) or after it (as release 1.1; default: %(default)s)",
    )
    group.add_argument(
        "--fresh-starts",
        action="store_true",
        help="every evaluation of a run has starts of its own, the same for all methods (default: all have the same)",
    )
    group.add_argument(
        "--workers",
        type=whole_number(0),
        default=num_workers,
        help="processes for the simulators, does not change results (default: %(default)s, 1 or 0: none but this)",
    )


def evaluation_settings(options: argparse.Namespace) -> EvaluationSettings:
    """How to judge, as the options say."""
    from pcbf_experiments.evaluation import EvaluationSettings

    return EvaluationSettings(
        num_episodes=options.episodes,
        num_slots=min(options.slots, options.episodes),
        episode_limit=options.episode_limit,
        success_timing=options.success_timing,
        fresh_starts=options.fresh_starts,
    )
