"""Manifest, publication and comparison of results."""

from __future__ import annotations

import itertools
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import yaml

from pcbf_analysis.control import load_sheets
from pcbf_analysis.provenance import (
    build_manifest,
    describe,
    faults,
    found_names,
    git_state,
    hardware,
    read_manifest,
    record_names,
)
from pcbf_analysis.provenance import main as manifest_main
from pcbf_analysis.publish import (
    Cell,
    PublishError,
    compare,
    compare_main,
    judge,
    judge_run,
    publish,
    seed_cells,
    summary,
)
from pcbf_analysis.publish import main as publish_main
from pcbf_analysis.settings import ENVIRONMENTS, METHODS, compact_json, load_scale, settings_hash

from .conftest import REPOSITORY, let_smoke_be_published, read_rows, write_finished_scale, write_json


@pytest.fixture
def root(checkout: Path) -> Path:
    """A checkout in which smoke may be published."""
    let_smoke_be_published(checkout)
    return checkout


def smoke_names(root: Path) -> list[str]:
    """The records that the smoke scale of a checkout consists of, without those that the machine decides."""
    return record_names(load_scale(root / "config/scales/smoke.yaml"), load_sheets(root))


# --- manifest -----------------------------------------------------------------------------------------------------


def test_the_manifest_says_where_records_come_from(root):
    results = write_finished_scale(root)
    settings = load_scale(root / "config/scales/smoke.yaml")
    (results / "manifest.json").unlink()
    arguments = ["--results", str(results), "--settings", compact_json(settings), "--root", str(root)]
    assert manifest_main(arguments) == 0
    manifest = read_manifest(results)
    assert manifest["scale"] == "smoke"
    assert manifest["config"] == {"sha256": settings_hash(settings), "settings": settings}
    assert set(manifest["code"]) == {"packages", "commit", "dirty"}
    assert set(manifest["code"]["packages"]) == {"pcbf-core", "pcbf-baselines", "pcbf-analysis"}
    assert manifest["packages"]["numpy"] == np.__version__
    assert manifest["hardware"]["cores"] >= 1
    assert sorted(manifest["records"]) == sorted([*smoke_names(root), *found_names(results)])
    assert not list(faults(results, manifest, smoke_names(root)))


def test_a_training_run_is_tied_to_its_config_and_code(root):
    results = write_finished_scale(root)
    name = next(name for name in smoke_names(root) if name.startswith("runs/"))
    record, described = (
        json.loads((results / name).read_text(encoding="utf-8")),
        read_manifest(results)["records"][name],
    )
    assert described["config_hash"] == record["config_hash"]
    assert described["commit"] == record["code"]["commit"]
    assert (described["status"], described["method_version"]) == ("finished", 1)


def test_a_record_that_the_manifest_does_not_know_is_a_fault(root):
    results = write_finished_scale(root)
    manifest = read_manifest(results)
    name = smoke_names(root)[-1]
    del manifest["records"][name]
    assert name.startswith("ablations/")
    assert list(faults(results, manifest, smoke_names(root))) == [f"{name} is not in manifest.json"]


def test_the_manifest_of_unfinished_results_is_refused(root, capsys):
    results = write_finished_scale(root)
    (results / "toy/w1.csv").unlink()
    settings = compact_json(load_scale(root / "config/scales/smoke.yaml"))
    assert manifest_main(["--results", str(results), "--settings", settings, "--root", str(root)]) == 1
    assert "toy/w1.csv is missing" in capsys.readouterr().err


def test_a_record_is_described_by_size_and_hash(tmp_path):
    (tmp_path / "a").write_bytes(b"abc")  # the hash of "abc" is an example of the standard, FIPS 180
    expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert describe(tmp_path / "a") == {"bytes": 3, "sha256": expected}


def test_faults_name_what_is_missing_and_what_changed(root):
    results = write_finished_scale(root)
    manifest = read_manifest(results)
    (results / "toy/w1.csv").write_text("something else\n", encoding="utf-8")
    (results / "theory/checks.csv").unlink()
    phrases = ["theory/checks.csv is missing", "toy/w1.csv has changed since manifest.json was written"]
    assert list(faults(results, manifest)) == phrases


def test_outside_git_there_is_no_commit(tmp_path):
    assert git_state(tmp_path) == {"commit": None, "dirty": None}


def test_hardware_names_no_host():
    assert set(hardware()) == {"system", "machine", "processor", "cores", "memory_gb", "accelerators"}


# --- publishing ---------------------------------------------------------------------------------------------------


def test_publishing_copies_records_and_manifest_only(root):
    results = write_finished_scale(root)
    for name in ("toy/runs/chain/old.npz", "runs/task/method/seed9.json", "ablations/control_weight=7/cost/t/m/s.json"):
        stale = root / "results/published/smoke" / name
        stale.parent.mkdir(parents=True)
        stale.touch()
    target = publish(root, "smoke")
    files = {path.relative_to(target).as_posix() for path in target.rglob("*") if path.is_file()}
    assert files == {*smoke_names(root), *found_names(results), "manifest.json"}
    assert all((target / name).read_bytes() == (results / name).read_bytes() for name in files)


def test_an_unfinished_scale_is_refused_with_what_to_do(root):
    with pytest.raises(PublishError, match=r"results/smoke is not finished: .* missing; run `make quick` first\."):
        publish(root, "smoke")
    results = write_finished_scale(root)
    (results / "theory/checks.csv").unlink()
    with pytest.raises(PublishError, match=r"theory/checks\.csv is missing"):
        publish(root, "smoke")
    assert not (root / "results/published").exists()


def test_a_scale_that_lacks_a_training_run_is_refused(root):
    results = write_finished_scale(root)
    name = next(name for name in smoke_names(root) if name.startswith("runs/"))
    (results / name).unlink()
    with pytest.raises(PublishError, match=f"{name} is missing; run `make quick` first"):
        publish(root, "smoke")


def test_a_changed_record_is_refused(root):
    results = write_finished_scale(root)
    (results / "toy/w1.csv").write_text("env\n", encoding="utf-8")
    with pytest.raises(PublishError, match=r"toy/w1\.csv has changed since manifest\.json was written"):
        publish(root, "smoke")


def test_results_of_other_settings_are_refused(root):
    write_finished_scale(root)
    file = root / "config/scales/smoke.yaml"
    settings = yaml.safe_load(file.read_text(encoding="utf-8"))
    before = settings["toy"]["num_steps"]
    settings["toy"]["num_steps"] = before + 1
    file.write_text(yaml.safe_dump(settings), encoding="utf-8")
    phrase = rf"was not made with config/scales/smoke\.yaml \(toy\.num_steps: {before}, not {before + 1}\)"
    with pytest.raises(PublishError, match=phrase):
        publish(root, "smoke")


def test_a_scale_that_dvc_would_not_rebuild_is_refused(root):
    with pytest.raises(PublishError, match=r"add paper to its list `published`"):
        publish(root, "paper")


def test_an_unknown_scale_gets_a_suggestion(root, capsys):
    assert publish_main(["laptob", "--root", str(root)]) == 1
    assert "did you mean laptop?" in capsys.readouterr().err


def test_the_command_says_what_it_published(root, capsys):
    results = write_finished_scale(root)
    assert publish_main(["smoke", "--root", str(root)]) == 0
    assert f"published {len([*smoke_names(root), *found_names(results)])} records" in capsys.readouterr().out


# --- comparing ----------------------------------------------------------------------------------------------------


def published_and_again(root: Path, **changes: float) -> tuple[Path, Path]:
    """Folders of a run and of an earlier one that is published; `changes` tell how the later differs."""
    published = root / "results/published/smoke"
    published.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(write_finished_scale(root), published)
    return write_finished_scale(root, **changes), published  # type: ignore[arg-type]


def verdicts(ours: Path, published: Path) -> dict[str, str]:
    return {finding.name: finding.verdict for finding in compare(ours, published).findings}


def test_the_same_arrays_are_identical_whatever_the_metadata(root):
    ours, published = published_and_again(root)
    path = ours / "toy/runs/chain/pcbf.npz"
    with np.load(path) as archive:
        arrays = {name: archive[name] for name in archive.files}
    np.savez(path, **{**arrays, "metadata": np.array('{"wall_seconds": 99}')})
    assert path.read_bytes() != (published / "toy/runs/chain/pcbf.npz").read_bytes()
    name = next(name for name in smoke_names(root) if name.startswith("runs/"))
    record = json.loads((ours / name).read_text(encoding="utf-8"))
    write_json(ours / name, {**record, "code": {"commit": "another"}, "versions": {"jax": "another"}})
    assert set(verdicts(ours, published).values()) == {"identical"}


def test_cost_and_pictures_are_not_compared_nor_held_against_what_shows_them(root):
    ours, published = published_and_again(root)
    for name in found_names(ours):
        write_json(ours / name, {"train_seconds": -1})
    (ours / "tables/cost.csv").write_text("other times\n", encoding="utf-8")
    found = verdicts(ours, published)
    assert not set(found_names(ours)) & set(found)
    assert found.pop("tables/cost.csv") == "agrees"
    assert set(found.values()) == {"identical"}


def test_an_ablation_made_by_request_is_published_and_no_difference(root):
    results = write_finished_scale(root)
    planned = next(name for name in smoke_names(root) if name.startswith("ablations/"))
    asked = planned.replace("control_weight=0.5", "action_reuse=1")
    (results / asked).parent.mkdir(parents=True)
    shutil.copyfile(results / planned, results / asked)
    settings, sheets = load_scale(root / "config/scales/smoke.yaml"), load_sheets(root)
    write_json(results / "manifest.json", build_manifest(results, settings, sheets))
    published = publish(root, "smoke")
    assert (published / asked).is_file()
    (results / asked).unlink()
    write_json(results / "manifest.json", build_manifest(results, settings, sheets))
    comparison = compare(results, published)
    assert comparison.one_sided == ["ablations/action_reuse=1"]
    records = [finding for finding in comparison.findings if not finding.name.startswith(("tables/", "figures/"))]
    assert {finding.verdict for finding in records} == {"identical"}
    assert "not compared: ablations/action_reuse=1" in summary(comparison, results, published)


def test_other_seeds_agree(root):
    ours, published = published_and_again(root, noise_seed=1)
    found = verdicts(ours, published)
    assert {found[name] for name in smoke_names(root) if name != "theory/checks.csv"} == {"agrees"}
    assert found["theory/checks.csv"] == "identical"
    assert found["figures/residual.svg"] == "agrees"


def test_a_shift_beyond_noise_differs(root):
    ours, published = published_and_again(root, noise_seed=1, shift=0.5)
    comparison = compare(ours, published)
    found = verdicts(ours, published)
    assert {found[name] for name in smoke_names(root) if name.endswith((".npz", "w1.csv"))} == {"differs"}
    assert {found[name] for name in smoke_names(root) if name.endswith((".json", "loss_std.csv"))} == {"agrees"}
    assert all(cell.quantity == "w1" and cell.excess > 1 for cell in comparison.worst)


def test_scores_beyond_noise_differ(root):
    ours, published = published_and_again(root, noise_seed=1, score_shift=60)
    found = verdicts(ours, published)
    assert {found[name] for name in smoke_names(root) if name.endswith(".json")} == {"differs"}
    assert {found[name] for name in smoke_names(root) if name.startswith("toy/")} == {"agrees"}


def test_one_mean_score_far_off_differs_though_the_suite_agrees():
    def cell(distance: float) -> Cell:
        return Cell("score", {}, 50.0, 50.0 + distance, 10.0, 0.125)

    suite = [cell(1.0)] * 9
    assert judge_run([cell(1.0)], suite)[0] == "agrees"
    assert judge_run([cell(15.0)], [*suite, cell(15.0)])[0] == "agrees"  # one of ten, by chance
    assert judge_run([cell(15.0)], [cell(15.0)] * 9)[0] == "differs"
    assert judge_run([cell(25.0)], [*suite, cell(25.0)])[0] == "differs"
    assert judge_run([], suite)[0] == "differs"  # all seeds of one side diverged


def test_a_check_with_another_outcome_differs_and_is_named(root):
    ours, published = published_and_again(root)
    path = ours / "theory/checks.csv"
    path.write_text(path.read_text(encoding="utf-8").replace("bound,s,l,1,2,<=,1,True", "bound,s,l,3,2,<=,-1,False"))
    finding = next(finding for finding in compare(ours, published).findings if finding.name == "theory/checks.csv")
    assert finding.verdict == "differs"
    assert "bound" in finding.detail


def test_a_missing_artefact_differs(root):
    ours, published = published_and_again(root)
    (ours / "tables/toy_w1.csv").unlink()
    finding = next(finding for finding in compare(ours, published).findings if finding.name == "tables/toy_w1.csv")
    assert (finding.verdict, finding.detail) == ("differs", "not made here")


def test_an_artefact_that_differs_though_its_records_do_not_is_pointed_out(root):
    ours, published = published_and_again(root)
    (ours / "figures/residual.svg").write_text("drawn otherwise\n", encoding="utf-8")
    finding = next(finding for finding in compare(ours, published).findings if finding.name == "figures/residual.svg")
    assert finding.verdict == "differs"
    assert "identical records" in finding.detail


def test_what_seeds_allow_is_two_combined_standard_errors_and_a_floor(tmp_path):
    header = "env,state,method,coefficient,seed,w1"
    for folder, values in (("ours", (1.0, 1.2, 1.4)), ("published", (1.1, 1.3, 1.5))):
        rows = [f"chain,5,pcbf,0.5,{seed},{value}" for seed, value in enumerate(values)]
        (tmp_path / folder / "toy").mkdir(parents=True)
        (tmp_path / folder / "toy/w1.csv").write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
    (cell,) = seed_cells(tmp_path / "ours", tmp_path / "published", "toy/w1.csv", "w1")
    assert cell.where == {"env": "chain", "state": 5, "method": "pcbf", "coefficient": 0.5}
    assert (cell.ours, cell.published) == pytest.approx((1.2, 1.3))
    assert cell.allowed == pytest.approx(2 * np.sqrt(0.04 / 3 + 0.04 / 3) + 0.01)
    assert cell.chance == pytest.approx(0.1161, abs=1e-4)  # P(|T| > 2) with 4 degrees of freedom
    assert cell.excess == pytest.approx(0.1 / 0.33660, rel=1e-4)


def test_a_few_cells_outside_are_chance_many_are_not():
    def cells(num_inside: int, num_outside: int) -> list[Cell]:
        inside, outside = Cell("w1", {}, 1.0, 1.05, 0.1, 0.125), Cell("w1", {}, 1.0, 1.5, 0.1, 0.125)
        return [inside] * num_inside + [outside] * num_outside

    assert judge(cells(2, 1)) == ("agrees", "2 of 3 means within seed noise")  # one is always allowed
    assert judge(cells(60, 20))[0] == "agrees"  # twice the ten expected by chance
    assert judge(cells(59, 21))[0] == "differs"


def test_other_settings_are_listed(root):
    ours, published = published_and_again(root)
    manifest = read_manifest(ours)
    manifest["config"]["settings"]["toy"]["batch_size"] = 7
    (ours / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    comparison = compare(ours, published)
    assert [phrase.split(",")[0] for phrase in comparison.settings] == ["toy.batch_size: 7"]
    assert "Made with other settings:" in summary(comparison, ours, published)


def test_the_command_prints_a_summary_and_writes_it(root, capsys):
    ours, published = published_and_again(root, noise_seed=1)
    assert compare_main(["--results", str(ours), "--published", str(published)]) == 0
    printed = capsys.readouterr().out
    assert f"agrees within seed noise: {len(smoke_names(root)) - 1} records" in printed
    assert "Farthest apart:" in printed
    written = json.loads((ours / "compare.json").read_text(encoding="utf-8"))
    assert {finding["verdict"] for finding in written["findings"]} == {"identical", "agrees"}
    assert "**agrees within seed noise**" in (ours / "compare.md").read_text(encoding="utf-8")


def test_nothing_published_is_said_plainly(root, capsys):
    ours = write_finished_scale(root)
    assert compare_main(["--results", str(ours), "--published", str(root / "results/published/smoke")]) == 0
    assert "Nothing is published" in capsys.readouterr().out


# --- what is published in this repository -------------------------------------------------------------------------

PUBLISHED = sorted(path.parent for path in (REPOSITORY / "results/published").glob("*/manifest.json"))


@pytest.mark.parametrize("folder", PUBLISHED, ids=lambda folder: folder.name)
def test_published_records_are_those_of_their_manifest(folder):
    manifest, settings = read_manifest(folder), load_scale(REPOSITORY / f"config/scales/{folder.name}.yaml")
    assert not list(faults(folder, manifest, record_names(settings, load_sheets(REPOSITORY))))
    assert manifest["config"]["settings"] == settings


@pytest.mark.parametrize("folder", PUBLISHED, ids=lambda folder: folder.name)
def test_published_distances_are_those_of_the_run_records(folder):
    rows = read_rows(folder / "toy/w1.csv")
    for env, method in itertools.product(ENVIRONMENTS, METHODS):
        with np.load(folder / f"toy/runs/{env}/{method}.npz", allow_pickle=False) as record:
            axes = itertools.product(record["coefficients"], record["seeds"], record["states"])
            recorded = dict(zip(((float(c), int(s), int(n)) for c, s, n in axes), np.ravel(record["w1"]), strict=True))
        collected = {
            (float(row["coefficient"]), int(row["seed"]), int(row["state"])): float(row["w1"])
            for row in rows
            if (row["env"], row["method"]) == (env, method)
        }
        assert collected == pytest.approx(recorded, rel=1e-4)
