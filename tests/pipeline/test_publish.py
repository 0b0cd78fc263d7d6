"""Manifest, publication and comparison of results."""

from __future__ import annotations

import itertools
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from pcbf_experiments.campaign.compare import Cell, compare, judge, judge_run, seed_cells, summary
from pcbf_experiments.campaign.compare import main as compare_main
from pcbf_experiments.campaign.manifest import build_manifest, describe, faults, read_manifest, record_names
from pcbf_experiments.campaign.manifest import main as manifest_main
from pcbf_experiments.campaign.plan import CLONER, TrainJob, ablation_jobs, all_jobs, control_jobs
from pcbf_experiments.campaign.publish import PublishError, last_snapshots, publish, publish_finished, restore
from pcbf_experiments.campaign.publish import main as publish_main
from pcbf_experiments.campaign.settings import load_scale, toy_pairs
from pcbf_records import layout
from pcbf_records.canonical import canonical_json, content_hash
from pcbf_records.runs import load_evaluations, load_run, save_evaluations, save_run
from pcbf_records.sheets import load_sheets
from pcbf_records.toy import W1_COLUMNS, load_toy_record
from pcbf_records.versions import PACKAGES, hardware, output_of

from .conftest import REPOSITORY, let_smoke_be_published, read_rows, write_finished_scale, write_job, write_json


@pytest.fixture
def root(checkout: Path) -> Path:
    """A checkout in which smoke may be published."""
    let_smoke_be_published(checkout)
    return checkout


def smoke_names(root: Path) -> list[str]:
    """The records that the smoke scale of a checkout consists of, without those that the machine decides."""
    return record_names(load_scale(root / "config/scales/smoke.yaml"), load_sheets(root))


def all_names(root: Path, results: Path) -> set[str]:
    """The records of a finished smoke scale, those included that the machine or a request decides."""
    return {*smoke_names(root), *layout.found_records(results)}


def compared_names(root: Path) -> list[str]:
    """The records of the smoke scale that are compared one by one; tables collected from them are not."""
    collected = (layout.CONTROL_EVALUATIONS, layout.CONTROL_CONFIGS, layout.TOY_TUNING_W1, layout.EXACT_OPTIMA)
    return [name for name in smoke_names(root) if name not in collected]


def first_job(root: Path) -> TrainJob:
    return control_jobs(load_scale(root / "config/scales/smoke.yaml"), load_sheets(root))[0]


def run_of(root: Path, results: Path) -> Path:
    """The run record of a seed of the smoke scale."""
    return first_job(root).files(results).record(0)


# --- manifest -----------------------------------------------------------------------------------------------------


def test_the_manifest_says_where_records_come_from(root):
    results = write_finished_scale(root)
    settings = load_scale(root / "config/scales/smoke.yaml")
    (results / layout.MANIFEST).unlink()
    arguments = ["--results", str(results), "--settings", canonical_json(settings), "--root", str(root)]
    assert manifest_main(arguments) == 0
    manifest = read_manifest(results)
    assert manifest["scale"] == "smoke"
    assert manifest["config"] == {"sha256": content_hash(settings), "settings": settings}
    assert set(manifest["code"]) == {"packages", "commit", "dirty"}
    assert set(manifest["code"]["packages"]) == set(PACKAGES)
    assert manifest["packages"]["numpy"] == np.__version__
    assert manifest["hardware"]["cores"] >= 1
    assert set(manifest["records"]) == all_names(root, results)
    assert not list(faults(results, manifest, smoke_names(root)))


def test_a_training_run_is_tied_to_its_config_and_code(root):
    results = write_finished_scale(root)
    path = run_of(root, results)
    record, described = load_run(path), read_manifest(results)["records"][path.relative_to(results).as_posix()]
    assert described["config_hash"] == record.config_hash
    assert described["commit"] == record.code["commit"]
    assert (described["status"], described["method_version"]) == ("finished", 1)


def test_a_record_that_the_manifest_does_not_know_is_a_fault(root):
    results = write_finished_scale(root)
    manifest = read_manifest(results)
    name = smoke_names(root)[-1]
    del manifest["records"][name]
    assert layout.change_of(name)
    assert list(faults(results, manifest, smoke_names(root))) == [f"{name} is not in manifest.json"]


def test_the_manifest_of_unfinished_results_is_refused(root, capsys):
    results = write_finished_scale(root)
    (results / layout.TOY_W1).unlink()
    settings = canonical_json(load_scale(root / "config/scales/smoke.yaml"))
    assert manifest_main(["--results", str(results), "--settings", settings, "--root", str(root)]) == 1
    assert "toy/w1.csv is missing" in capsys.readouterr().err


def test_a_record_is_described_by_size_and_hash(tmp_path):
    (tmp_path / "a").write_bytes(b"abc")  # the hash of "abc" is an example of the standard, FIPS 180
    expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert describe(tmp_path / "a") == {"bytes": 3, "sha256": expected}


def test_faults_name_what_is_missing_and_what_changed(root):
    results = write_finished_scale(root)
    manifest = read_manifest(results)
    (results / layout.TOY_W1).write_text("something else\n", encoding="utf-8")
    (results / layout.THEORY_CHECKS).unlink()
    phrases = ["theory/checks.csv is missing", "toy/w1.csv has changed since manifest.json was written"]
    assert list(faults(results, manifest)) == phrases


def test_outside_git_there_is_no_commit(tmp_path):
    assert output_of(["git", "rev-parse", "HEAD"], tmp_path) is None


def test_hardware_names_no_host():
    assert set(hardware()) == {"system", "machine", "processor", "cores", "memory_gb", "accelerators"}


# --- publishing ---------------------------------------------------------------------------------------------------


def test_publishing_copies_records_and_manifest_only(root):
    results = write_finished_scale(root)
    published = root / layout.published_folder("smoke")
    old = layout.JobFiles(published, "task", "method", "seeds9")
    other = layout.JobFiles(published / layout.ablation("control_weight=7"), "task", "method", "seeds9")
    for stale in (published / layout.toy_run("chain", "old"), old.record(9), old.evaluations(9), other.cost):
        stale.parent.mkdir(parents=True)
        stale.touch()
    target = publish(root, "smoke")
    files = {path.relative_to(target).as_posix() for path in target.rglob("*") if path.is_file()}
    assert files == {*all_names(root, results), layout.MANIFEST}
    assert all((target / name).read_bytes() == (results / name).read_bytes() for name in files)


def test_an_unfinished_scale_is_refused_with_what_to_do(root):
    with pytest.raises(PublishError, match=r"results/smoke is not finished: .* missing; run `make quick` first\."):
        publish(root, "smoke")
    results = write_finished_scale(root)
    (results / layout.THEORY_CHECKS).unlink()
    with pytest.raises(PublishError, match=r"theory/checks\.csv is missing"):
        publish(root, "smoke")
    assert not (root / "results/published").exists()


def test_a_scale_that_lacks_a_training_run_is_refused(root):
    results = write_finished_scale(root)
    path = run_of(root, results)
    path.unlink()
    with pytest.raises(PublishError, match=f"{path.relative_to(results)} is missing; run `make quick` first"):
        publish(root, "smoke")


def test_a_scale_that_lacks_the_evaluations_of_a_run_is_refused(root):
    results = write_finished_scale(root)
    path = first_job(root).files(results).evaluations(0)
    path.unlink()
    with pytest.raises(PublishError, match=f"{path.relative_to(results)} is missing; run `make quick` first"):
        publish(root, "smoke")


def test_a_changed_record_is_refused(root):
    results = write_finished_scale(root)
    (results / layout.TOY_W1).write_text("env\n", encoding="utf-8")
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
    assert f"published {len(all_names(root, results))} records" in capsys.readouterr().out


# --- comparing ----------------------------------------------------------------------------------------------------


def published_and_again(root: Path, **changes: float) -> tuple[Path, Path]:
    """Folders of a run and of an earlier one that is published; `changes` tell how the later differs."""
    published = root / "results/published/smoke"
    published.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(write_finished_scale(root), published)
    return write_finished_scale(root, **changes), published  # type: ignore[arg-type]


def verdicts(ours: Path, published: Path) -> dict[str, str]:
    return {finding.name: finding.verdict for finding in compare(ours, published).findings}


def test_what_is_finished_of_a_scale_goes_to_the_published_folder_and_back(root):
    """A job that is not judged stays behind, the others of its task take the proposals along; receipts come back."""
    scale = root / "config/scales/smoke.yaml"
    told = scale.read_text(encoding="utf-8").replace("methods: [pcbf, iql, random]", "methods: [pcbf, iql, bc]")
    scale.write_text(told, encoding="utf-8")
    results, target = write_finished_scale(root), root / layout.published_folder("smoke")
    settings, sheets = load_scale(root / "config/scales/smoke.yaml"), load_sheets(root)
    jobs, toy = all_jobs(settings, sheets), layout.toy_run(*toy_pairs(settings)[0])
    (cloner,) = [job for job in jobs if job.method == CLONER]
    behind = next(job for job in jobs if job != cloner)
    behind.files(results).evaluation_receipt.unlink()
    for name in last_snapshots(results, cloner):
        write_json(results / name, {})
    names = publish_finished(root, "smoke")
    assert {toy, *last_snapshots(results, cloner)} < {*names} and not (target / layout.MANIFEST).exists()
    carried = [job for job in jobs if job != behind]
    assert {name for name in names if layout.is_run(name)} == {
        job.files().record(seed).as_posix() for job in carried for seed in job.seeds
    }
    receipts = {path: json.loads(path.read_text()) for job in carried for path in job.files(results).receipts}
    shutil.rmtree(results)
    assert {*restore(root, "smoke")} == {*names}
    for path, said in receipts.items():
        hashes = {name: record["sha256"] for name, record in json.loads(path.read_text())["records"].items()}
        assert hashes == {name: record["sha256"] for name, record in said["records"].items()}
    assert not behind.files(results).receipt.exists()
    assert restore(root, "smoke") == []


def test_proposals_are_carried_along_only_while_a_job_may_need_them(root):
    results, target = write_finished_scale(root), root / layout.published_folder("smoke")
    write_json(target / layout.SNAPSHOTS / "old.safetensors", {})
    publish_finished(root, "smoke")
    assert not (target / layout.SNAPSHOTS).exists() and (target / run_of(root, results).relative_to(results)).exists()


def test_restoring_replaces_nothing(root):
    results = write_finished_scale(root)
    publish_finished(root, "smoke")
    record = run_of(root, results)
    record.write_text("mine", encoding="utf-8")
    assert publish_main(["smoke", "--restore", "--root", str(root)]) == 0
    assert record.read_text(encoding="utf-8") == "mine"


def test_the_same_arrays_are_identical_whatever_the_metadata(root):
    ours, published = published_and_again(root)
    path = ours / layout.toy_run("chain", "pcbf")
    with np.load(path) as archive:
        arrays = {name: archive[name] for name in archive.files}
    np.savez(path, **{**arrays, "metadata": np.array('{"wall_seconds": 99}')})
    assert path.read_bytes() != (published / layout.toy_run("chain", "pcbf")).read_bytes()
    made_elsewhere: dict[str, Any] = {"code": {"commit": "another"}, "versions": {"jax": "another"}}
    files = first_job(root).files(ours)
    save_run(files.record(0), replace(load_run(files.record(0)), **made_elsewhere))
    save_evaluations(files.evaluations(0), replace(load_evaluations(files.evaluations(0)), **made_elsewhere))
    assert set(verdicts(ours, published).values()) == {"identical"}


def test_cost_and_pictures_are_not_compared_nor_held_against_what_shows_them(root):
    ours, published = published_and_again(root)
    names = [name for name in layout.found_records(ours) if layout.is_cost(name) or layout.is_picture(name)]
    for name in names:
        write_json(ours / name, {"train_seconds": -1})
    (ours / "tables/cost.csv").write_text("other times\n", encoding="utf-8")
    found = verdicts(ours, published)
    assert names and not set(names) & set(found)
    assert found.pop("tables/cost.csv") == "agrees"
    assert set(found.values()) == {"identical"}


def test_an_ablation_made_by_request_is_published_and_no_difference(root):
    results = write_finished_scale(root)
    settings, sheets = load_scale(root / "config/scales/smoke.yaml"), load_sheets(root)
    asked = replace(ablation_jobs(settings, sheets)[0], change="action_reuse=1")
    write_job(asked.files(results), dict.fromkeys(asked.seeds, 50.0))
    write_json(results / layout.MANIFEST, build_manifest(results, settings, sheets))
    published = publish(root, "smoke")
    assert all((published / name).is_file() for name in asked.records)
    shutil.rmtree(results / asked.folder)
    write_json(results / layout.MANIFEST, build_manifest(results, settings, sheets))
    comparison = compare(results, published)
    assert comparison.one_sided == ["ablations/action_reuse=1"]
    records = [finding for finding in comparison.findings if not finding.name.startswith(("tables/", "figures/"))]
    assert {finding.verdict for finding in records} == {"identical"}
    assert "not compared: ablations/action_reuse=1" in summary(comparison, results, published)


def test_other_seeds_agree(root):
    ours, published = published_and_again(root, noise_seed=1)
    found = verdicts(ours, published)
    theory = {layout.THEORY_CHECKS, layout.THEORY_POPULATION}
    assert {found[name] for name in compared_names(root) if name not in theory} == {"agrees"}
    assert {found[name] for name in theory} == {"identical"}
    assert found["figures/residual.svg"] == "agrees"


def test_a_shift_beyond_noise_differs(root):
    ours, published = published_and_again(root, noise_seed=1, shift=0.5)
    comparison = compare(ours, published)
    found = verdicts(ours, published)
    assert {found[name] for name in compared_names(root) if name.endswith((".npz", "w1.csv"))} == {"differs"}
    assert {found[name] for name in compared_names(root) if name.endswith((".json", "loss_std.csv"))} == {"agrees"}
    assert all(cell.quantity == "w1" and cell.excess > 1 for cell in comparison.worst)


def test_scores_beyond_noise_differ(root):
    ours, published = published_and_again(root, noise_seed=1, score_shift=60)
    found = verdicts(ours, published)
    assert {found[name] for name in compared_names(root) if name.endswith(".json")} == {"differs"}
    assert {found[name] for name in compared_names(root) if name.startswith("toy/")} == {"agrees"}


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
    path = ours / layout.THEORY_CHECKS
    path.write_text(path.read_text(encoding="utf-8").replace("bound,s,l,1,2,<=,1,true", "bound,s,l,3,2,<=,-1,false"))
    finding = next(finding for finding in compare(ours, published).findings if finding.name == layout.THEORY_CHECKS)
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
    header = ",".join(W1_COLUMNS)
    for folder, values in (("ours", (1.0, 1.2, 1.4)), ("published", (1.1, 1.3, 1.5))):
        rows = [f"chain,5,pcbf,0.5,{seed},{value}" for seed, value in enumerate(values)]
        (tmp_path / folder / "toy").mkdir(parents=True)
        (tmp_path / folder / layout.TOY_W1).write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
    (cell,) = seed_cells(tmp_path / "ours", tmp_path / "published", layout.TOY_W1, "w1")
    assert cell.where == {"env": "chain", "state": 5, "method": "pcbf", "coefficient": 0.5}
    assert (cell.ours, cell.published) == pytest.approx((1.2, 1.3))
    assert cell.allowed == pytest.approx(2 * np.sqrt(0.04 / 3 + 0.04 / 3) + 0.01)
    assert cell.chance == pytest.approx(0.1161, abs=1e-4)  # P(|T| > 2) with 4 degrees of freedom
    assert cell.excess == pytest.approx(0.1 / 0.33660, rel=1e-4)


def test_learning_rates_are_compared_as_the_chosen_ones_and_weights_one_by_one(tmp_path):
    """Which of two equally good rates a tuning seed chooses is rounding."""
    for folder, coefficient in (("ours", 0.01), ("published", 0.003)):
        rows = [f"solitaire,0,{method},{coefficient},0,0.1" for method in ("iqn", "pcbf")]
        (tmp_path / folder / "toy").mkdir(parents=True)
        text = "\n".join([",".join(W1_COLUMNS), *rows]) + "\n"
        (tmp_path / folder / layout.TOY_W1).write_text(text, encoding="utf-8")
    (cell,) = seed_cells(tmp_path / "ours", tmp_path / "published", layout.TOY_W1, "w1")
    assert cell.where == {"env": "solitaire", "state": 0, "method": "iqn", "coefficient": "chosen"}


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
    (ours / layout.MANIFEST).write_text(json.dumps(manifest), encoding="utf-8")
    comparison = compare(ours, published)
    assert [phrase.split(",")[0] for phrase in comparison.settings] == ["toy.batch_size: 7"]
    assert "Made with other settings:" in summary(comparison, ours, published)


def test_the_command_prints_a_summary_and_writes_it(root, capsys):
    ours, published = published_and_again(root, noise_seed=1)
    assert compare_main(["--results", str(ours), "--published", str(published)]) == 0
    printed = capsys.readouterr().out
    assert f"agrees within seed noise: {len(compared_names(root)) - 2} records" in printed
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
    rows = read_rows(folder / layout.TOY_W1)
    for path in layout.toy_files(folder):
        record = load_toy_record(path)
        process, method = record.process, record.method
        axes = itertools.product(record.coefficients, record.seeds, record.states)
        recorded = dict(zip(((float(c), int(s), int(n)) for c, s, n in axes), np.ravel(record.w1), strict=True))
        collected = {
            (float(row["coefficient"]), int(row["seed"]), int(row["state"])): float(row["w1"])
            for row in rows
            if (row["env"], row["method"]) == (process, method)
        }
        ran = {place: distance for place, distance in recorded.items() if np.isfinite(distance)}
        assert ran and collected == pytest.approx(ran, rel=1e-4)
