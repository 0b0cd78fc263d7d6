"""What is put right before jobs are planned: locks of a killed scheduler, receipts whose records are gone, kernels.

Snakemake's own locks are plain files: after SIGKILL or a power cut they stay, and the same command is refused until
somebody runs `--unlock`. So every scheduler also holds a lock that the kernel frees when it ends. Whoever can have that
one alone knows that no other scheduler is alive here, and may remove what dead ones left.
"""

from __future__ import annotations

import fcntl
import os
import platform
from collections.abc import Iterable, MutableMapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from pcbf_records import layout
from pcbf_records.canonical import suggestion
from pcbf_records.locks import open_lock, try_lock
from pcbf_records.runs import Fault, receipt_faults

_HELD: list[IO[str]] = []  # open until this process ends


def clear_stale_locks(folder: Path) -> list[Path]:
    """Snakemake's lock files in `folder` (.snakemake) that a scheduler which is gone left here; they are removed.

    The lock is marked with this machine's name and held from now on. Locks of another machine are left alone: on a
    shared file system its scheduler may be alive although we cannot see its lock.
    """
    file = open_lock(folder / "pcbf-scheduler.lock")
    _HELD.append(file)
    removed: list[Path] = []
    if try_lock(file):  # else another scheduler is alive; Snakemake itself decides whether the two may go on
        file.seek(0)
        if file.read() in ("", platform.node()):
            removed = sorted((folder / "locks").glob("*.lock"))
            for path in removed:
                path.unlink(missing_ok=True)
            file.truncate(0)
            file.write(platform.node())
            file.flush()
    fcntl.flock(file, fcntl.LOCK_SH)
    return removed


def stale_receipts(results: Path) -> dict[Path, list[Fault]]:
    """Receipts of a results folder that name records which are missing or changed, and these records."""
    faults = {
        receipt: list(receipt_faults(folder, receipt))
        for folder in [results, *layout.ablation_folders(results)]
        for receipt in layout.receipt_files(folder)
    }
    return {receipt: found for receipt, found in faults.items() if found}


def clear_receipt(receipt: Path, faults: Iterable[Fault]) -> None:
    """Remove a stale receipt, so that its job runs again.

    A record that has changed is put aside: what the job finds would otherwise be taken for its own.
    """
    for fault in faults:
        if fault.path.is_file() and fault.path != receipt:
            fault.path.replace(fault.path.with_name(f"{fault.path.name}.old"))
    receipt.unlink(missing_ok=True)


# --- Snakemake's command line ---------------------------------------------------------------------------------------

# Options that have Snakemake look at the plan, or mend its own notes, without running a job.
LOOKING = (
    *("dryrun", "lint", "summary", "detailed_summary", "dag", "d3dag", "rulegraph", "filegraph", "report", "archive"),
    *("list_rules", "list_target_rules", "list_changes", "list_input_changes", "list_params_changes", "list_untracked"),
    *("unlock", "touch", "cleanup_metadata", "print_compilation", "containerize", "export_cwl", "generate_unit_tests"),
)


@dataclass(frozen=True)
class CommandLine:
    """What Snakemake was asked for: targets, and whether to run them or only to look."""

    targets: tuple[str, ...] = ()
    is_run: bool = True


def command_line(arguments: Sequence[str]) -> CommandLine:
    """Snakemake's command line (`sys.argv`); an empty one if this is another program."""
    if "snakemake" not in arguments[0]:
        return CommandLine()
    from snakemake.cli import get_argument_parser

    options, _ = get_argument_parser().parse_known_args(arguments[1:])
    return CommandLine(tuple(options.targets or ()), not any(getattr(options, name, None) for name in LOOKING))


def target_faults(targets: Iterable[str], rules: Sequence[str], artefacts: Sequence[str]) -> list[str]:
    """A sentence for every target that is no rule, no figure or table of `artefacts`, and no other file either."""
    folders = {os.path.dirname(path) for path in artefacts if "/figures/" in path or "/tables/" in path}
    faults = []
    for target in targets:
        is_artefact = os.path.dirname(target) in folders
        if target in rules or target in artefacts or ("/" in target and not is_artefact):
            continue
        hint = suggestion(target, artefacts if is_artefact else rules)
        faults.append(
            f"there is no target {target}{hint}\ntargets: {', '.join(rules)}, or a file of results/<scale>, such as "
            f"{min(artefacts, key=lambda path: '/figures/' not in path)}"
        )
    return faults


KERNELS = "SkylakeX"  # of the machines that made the published data


def name_kernels(environment: MutableMapping[str, str], cpu: Path = Path("/proc/cpuinfo")) -> None:
    """Have what `environment` is for multiply by the same kernels in NumPy wherever this machine can run them.

    OpenBLAS would choose by the maker of the CPU, and simulated data of one seed would differ in their last digits.
    What the user has set stays. Asked on each node: a job may come to one that cannot run what its scheduler can.
    """
    needed = {f"avx512{part}" for part in ("f", "cd", "bw", "dq", "vl")}
    if cpu.exists() and needed <= set(cpu.read_text(encoding="utf-8").split()):
        environment.setdefault("OPENBLAS_CORETYPE", KERNELS)
    elif environment.get("OPENBLAS_CORETYPE") == KERNELS:
        del environment["OPENBLAS_CORETYPE"]
