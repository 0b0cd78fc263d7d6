"""`make sheets`: write what config/ and the packages hold of the registries, for whatever must start without JAX."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from pcbf_baselines.registry import METHODS, Method
from pcbf_core.config import json_schema
from pcbf_experiments import method_settings
from pcbf_experiments.tasks import EXTRA_TASKS, PAPER_TASKS
from pcbf_records.canonical import readable_json
from pcbf_records.files import write_text
from pcbf_records.layout import CONFIG
from pcbf_records.sheets import MethodRow, Task, sheet_text


def sheets(root: Path) -> dict[Path, str]:
    """The text of every sheet by its file."""
    rows = [MethodRow(method.name, method.title, method.visual, method.version) for method in METHODS.values()]
    return {
        root / CONFIG / "tasks.tsv": sheet_text(PAPER_TASKS.values(), Task),
        root / CONFIG / "extra_tasks.tsv": sheet_text(EXTRA_TASKS.values(), Task),
        root / CONFIG / "methods.tsv": sheet_text(rows, MethodRow),
        Path(method_settings.__file__).with_name(method_settings.FILE): readable_json(schemas(METHODS)),
    }


def schemas(methods: Mapping[str, Method]) -> dict[str, dict]:
    """The JSON schema of the settings of each method, its named forms included (`make_config`)."""
    made = {name: json_schema(method.config) for name, method in methods.items()}
    for name, method in methods.items():
        if hasattr(method.config, "variant"):
            made[name]["properties"]["variant"] = {"enum": list(method.config.variants)}
    return made


def main() -> int:
    """Write the sheets into the repository of the current directory."""
    for path, text in sheets(Path()).items():
        write_text(path, text)
        print(f"wrote {path.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
