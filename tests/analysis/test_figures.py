"""Figures: what they compute, what they show on whole and partial records, and their bytes."""

from __future__ import annotations

import io
import itertools
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from PIL import Image

from pcbf_analysis import artefacts, cli, theme
from pcbf_analysis.figures import common, flow_chain, flowmap_mc, ogbench, pcbf_architecture
from pcbf_analysis.results import Results, Setting, chosen_coefficient
from pcbf_core.mrp import MRPS
from pcbf_records.calibration import CALIBRATED
from pcbf_records.errors import RecordError
from pcbf_records.layout import TOY_W1, ablation, picture
from pcbf_records.sheets import load_sheets
from pcbf_records.toy import PAPER_PROCESSES, TOY_METHODS

from .conftest import REPOSITORY
from .run_fixtures import CUBE, CUBE_2, PEN, collected, write_run, write_runs

LABELS = list(artefacts.FIGURES)
ALL_SETTINGS = [Setting(name, state) for name in PAPER_PROCESSES for state in MRPS[name].live_states]


@pytest.fixture(scope="session")
def whole(complete: Results, tmp_path_factory: pytest.TempPathFactory) -> Results:
    """The complete toy records with control runs, an ablation and pictures of the tasks; do not write into it."""
    root = tmp_path_factory.mktemp("whole") / "results"
    shutil.copytree(complete.root, root)
    for method, score in (("iql", 30.0), ("value_flows", 50.0), ("pcbf", 60.0)):
        write_runs(root, CUBE, method, [score, score + 10])
    for weight, score in ((0.0, 40.0), (0.4, 60.0), (0.99, 20.0)):
        for task in (CUBE_2, PEN):
            write_runs(root / ablation(f"control_weight={weight:g}"), task, "pcbf", [score, score + 10])
    for task in ogbench.TASKS:
        is_single = task in ogbench.ADROIT_TASKS.values()
        path = root / picture(task)
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(np.full((20, 20 if is_single else 40, 3), 90, np.uint8)).save(path)
    return collected(root)


def draw(label: str, results: Results) -> Figure:
    with theme.context():
        return artefacts.FIGURES[label].draw(results)


def panels_without_records(figure: Figure) -> int:
    return sum(any(text.get_text() == theme.NO_RECORDS for text in axes.texts) for axes in figure.axes)


def legend_texts(figure: Figure) -> list[str]:
    return [text.get_text() for legend in figure.legends for text in legend.get_texts()]


def test_mean_and_student_interval_by_hand() -> None:
    values = np.array([[1.0, 2.0, 3.0], [1.0, 3.0, np.nan], [5.0, np.nan, np.nan], [np.nan] * 3])
    mean, half = common.mean_interval(values)
    np.testing.assert_allclose(mean, [2.0, 2.0, 5.0, np.nan])
    np.testing.assert_allclose(half[0], 4.302653 / np.sqrt(3), rtol=1e-6)  # t(0.975; 2) s / √3 with s = 1
    np.testing.assert_allclose(half[1], 12.706205, rtol=1e-6)  # t(0.975; 1) √2 / √2
    assert np.isnan(half[2:]).all()


@pytest.mark.parametrize("setting", ALL_SETTINGS, ids=lambda s: f"{s.process}-{s.state}")
def test_the_exact_histogram_has_mass_one_and_the_exact_cdf_its_corners(setting: Setting) -> None:
    law = setting.law
    low, high = common.RETURN_RANGES[setting.process]
    edges, heights = common.common_cells(law, low, high, **common.CELLS[setting.process])
    assert edges[0] <= low + common.CELLS[setting.process]["min_width"] + 1e-9  # a learned law may have mass beside it
    widths = np.diff(edges)
    assert (heights * widths).sum() == pytest.approx(1, abs=1e-9)
    assert (widths >= common.CELLS[setting.process]["min_width"] - 1e-9).all()
    values, levels = common.exact_cdf(law, *common.CDF_RANGES[setting.process])
    assert (np.diff(values) >= 0).all()
    assert (np.diff(levels) >= 0).all()
    assert levels[0] == 0
    assert levels[-1] == pytest.approx(1)
    np.testing.assert_allclose(levels[2:-1:2], law.cdf(values[2:-1:2]))


def test_solitaires_first_cell_is_its_first_atom() -> None:
    edges, heights = common.common_cells(MRPS["solitaire"].return_law(0), -4, 10, min_width=0.4)
    first = int(np.flatnonzero(heights)[0])
    np.testing.assert_allclose(edges[first : first + 3], [-0.5, 0.5, 1.45])  # atoms 0, 1, 1.9
    np.testing.assert_allclose(heights[first : first + 2], [1 / 6, (5 / 36) / 0.95])


def test_a_right_law_looks_right_though_it_smears_its_atoms(complete: Results) -> None:
    """The exact quantiles, a little disturbed, fill the cells as the exact law does."""
    law, record = MRPS["solitaire"].return_law(0), complete.toy("solitaire", "pcbf")
    assert record is not None
    edges, exact = common.common_cells(law, -4, 10, min_width=0.4)
    levels = (np.arange(2000) + 0.5) / 2000
    smeared = law.quantile(levels) + 0.05 * np.sin(np.arange(2000))
    curves = np.broadcast_to(np.sort(smeared), (*record.quantiles.shape[:3], 2000))
    right = replace(record, levels=levels, quantiles=curves)
    np.testing.assert_allclose(common.learned_heights(right, 0, edges), exact, atol=5e-3)


def test_thinning_keeps_both_ends() -> None:
    assert common.thinned(1000, 3).tolist() == [0, 500, 999]  # 499.5 rounds to even
    assert common.thinned(4, 10).tolist() == [0, 1, 2, 3]


def test_an_ablation_that_diverges_is_written_and_not_drawn(build: Callable[..., Results]) -> None:
    results = build(processes=["solitaire"], methods=TOY_METHODS[:4], num_levels=10)
    path = results.root / TOY_W1
    frame = pd.read_csv(path)
    rows = (frame["method"] == "pcbf-independent") & (frame["coefficient"] > 0.8)
    frame.loc[rows, "w1"] = 51.0
    frame.to_csv(path, index=False)
    axes = draw("toy_sen", results).axes[0]
    assert axes.get_ylim()[1] < 10
    assert [text.get_text() for text in axes.texts] == ["to 51 ↑"]


def test_method_names_colours_and_order_live_in_one_place() -> None:
    assert set(theme.METHODS) == {*load_sheets(REPOSITORY).methods, *TOY_METHODS, *CALIBRATED}
    assert list(theme.METHODS)[-1] == "pcbf"
    looks = [(style.colour, style.marker) for style in theme.METHODS.values()]
    assert len(set(looks)) == len(looks)
    colours = [np.array(to_rgb(style.colour)) for style in theme.METHODS.values()]
    assert min(np.linalg.norm(a - b) for a, b in itertools.combinations(colours, 2)) > 0.15
    assert theme.method_order("iqn") < theme.method_order("value_flows") < theme.method_order("pcbf")
    assert theme.method_order("something else") == len(theme.METHODS)


def test_the_registry_names_the_records_each_figure_reads(whole: Results) -> None:
    assert set(LABELS) == {
        "pcbf-architecture",
        "ablations",
        "ogbench",
        "performance_profiles",
        "flowmap_combined",
        "flowmap_mc",
        "toy_cdf_comparison",
        "cdf_comparison",
        "toy_sen",
        "hyper_abla",
        "var-reduction",
        "residual",
        "flow_path",
        "exact_control",
        "calibration",
    }
    for artefact in artefacts.of_kind("figure").values():
        assert all((whole.root / name).exists() for name in artefact.inputs), artefact.label
        assert len(artefact.caption) > 100


@pytest.mark.slow
@pytest.mark.parametrize("label", LABELS)
def test_whole_records_leave_no_panel_empty(label: str, whole: Results) -> None:
    assert panels_without_records(draw(label, whole)) == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("label", "in_partial", "in_empty"),
    [
        ("pcbf-architecture", 0, 3),
        ("ablations", 6, 6),  # the paper's tasks
        ("flowmap_combined", 2, 4),  # the chain's two states
        ("flowmap_mc", 18, 18),
        ("toy_cdf_comparison", 1, 3),
        ("cdf_comparison", 4, 6),
        ("toy_sen", 1, 2),
        ("hyper_abla", 1, 3),
        ("var-reduction", 0, 2),
        ("flow_path", 4, 10),  # fixed points of normal rewards are a line without toy records
        ("residual", 0, 4),
        ("exact_control", 4, 4),
        ("calibration", 6, 6),  # a histogram and a panel of scores per dataset
    ],
)
def test_panels_without_records_say_so(
    label: str, in_partial: int, in_empty: int, partial: Results, empty: Results
) -> None:
    assert panels_without_records(draw(label, partial)) == in_partial
    assert panels_without_records(draw(label, empty)) == in_empty


@pytest.mark.parametrize("label", ["toy_cdf_comparison", "cdf_comparison"])
def test_the_legend_names_the_chosen_coefficients(label: str, complete: Results) -> None:
    chosen = [chosen_coefficient(complete, process) for process in PAPER_PROCESSES]
    names = ("Solitaire", "Bernoulli", "MC chain")
    parts = [f"{name} {value:.3g}" for name, value in zip(names, chosen, strict=True) if value is not None]
    assert len(parts) == 3
    assert f"PCBF (λ: {', '.join(parts)})" in legend_texts(draw(label, complete))


def test_the_star_marks_the_chosen_coefficient_and_the_dotted_line_the_paper(complete: Results) -> None:
    chain = draw("toy_sen", complete).axes[1]
    star = next(line for line in chain.lines if line.get_marker() == "*")
    assert np.asarray(star.get_xdata()).item() == chosen_coefficient(complete, "chain")
    dotted = next(line for line in chain.lines if line.get_linestyle() == ":")
    np.testing.assert_allclose(np.asarray(dotted.get_ydata())[0], (0.334 + 0.586 + 0.539 + 0.352) / 4)


@pytest.mark.slow
def test_relative_loss_deviation_starts_at_one(complete: Results) -> None:
    relative = draw("var-reduction", complete).axes[0]
    curves = [np.asarray(line.get_ydata()) for line in relative.lines if line.get_marker() in ("o", "s", "^")]
    assert len(curves) == 3  # one per process, with shared noise
    assert all(curve[0] == pytest.approx(1) for curve in curves)
    assert all((np.diff(curve) < 0).all() for curve in curves)  # as the synthetic loss std falls with λ


def test_residuals_are_drawn_on_each_budgets_own_grid(complete: Results) -> None:
    panels = draw("residual", complete).axes
    assert [len(np.asarray(panel.lines[0].get_xdata())) for panel in panels] == [5, 9, 17, 33]
    assert all(np.asarray(panel.lines[0].get_ydata())[0] == 0 for panel in panels)
    assert "shared noise (PCBF), λ = 0.45" in legend_texts(draw("residual", complete))


def test_the_chain_figure_states_its_choice_of_states(complete: Results) -> None:
    titles = [axes.get_title() for axes in draw("flowmap_mc", complete).axes if axes.get_title()]
    assert titles == [f"s = {state}" for state in range(1, 19)]
    assert "only the states s = 1..18 are non-terminal" in flowmap_mc.CAPTION


def test_the_flow_maps_use_the_papers_ranges(complete: Results) -> None:
    flows = draw("flowmap_combined", complete).axes[::2]
    assert [axes.get_ylim() for axes in flows] == [(-4, 10), (-3, 3), (-5, 25), (-5, 25)]


def test_shared_noise_paths_keep_the_source_and_bellmans_end_and_the_others_do_not() -> None:
    noise, successor_return = np.array([-1.0, 0.0, 2.0]), np.array([0.5, 1.0, 1.5])
    reward, discount = pcbf_architecture.REWARD, MRPS["bernoulli"].discount
    current, successor = pcbf_architecture.shared_noise(noise, successor_return)
    np.testing.assert_allclose(current[0], noise, atol=1e-6)
    np.testing.assert_allclose(successor[0], noise, atol=1e-6)
    np.testing.assert_allclose(current[-1], reward + discount * successor[-1], atol=1e-6)
    shifted, _ = pcbf_architecture.source_inconsistent(noise, successor_return)
    np.testing.assert_allclose(shifted[0], reward + discount * noise, atol=1e-6)
    np.testing.assert_allclose(shifted[-1], current[-1], atol=1e-6)
    apart, other = pcbf_architecture.uncoupled(noise, successor_return)
    np.testing.assert_allclose(apart[0], noise, atol=1e-6)
    assert not np.allclose(other[0], noise)


def test_the_ablation_marks_the_best_weight_and_names_what_is_missing(whole: Results) -> None:
    figure = draw("ablations", whole)
    assert [axes.get_title() for axes in figure.axes] == ["cube-double-play-task2", "pen-cloned"]
    stars = [line for axes in figure.axes for line in axes.lines if line.get_marker() == "*"]
    assert [np.asarray(star.get_xdata()).item() for star in stars] == [0.4, 0.4]
    np.testing.assert_allclose([np.asarray(star.get_ydata()).item() for star in stars], 65.0)
    note = figure.legends[0].get_title().get_text()
    assert note.startswith(f"{theme.NO_RECORDS}: scene-play-task2, ")
    assert "hammer-expert" in note
    assert "cube-double" not in note
    assert figure.axes[1].get_ylabel() == "normalised return"


def test_diverged_and_local_runs_are_named(empty: Results) -> None:
    for seed, status in enumerate(("finished", "diverged")):
        folder = empty.root / ablation("control_weight=0.5")
        write_run(folder, CUBE, "pcbf", seed, [[40]], source="local", status=status)  # type: ignore[arg-type]
    axes = draw("ablations", collected(empty.root)).axes[0]
    assert axes.get_title() == "cube-double-play-task1, local"
    assert [text.get_text() for text in axes.texts] == ["1 of 2 runs diverged"]


def test_a_task_without_a_picture_is_named_and_a_broken_picture_refused(empty: Results) -> None:
    figure = draw("ogbench", empty)
    assert len(figure.axes) == 10
    assert all(axes.texts[0].get_text() == "not rendered yet" for axes in figure.axes)
    path = empty.root / ogbench.INPUTS[0]
    path.parent.mkdir()
    path.write_bytes(b"no picture")
    with pytest.raises(RecordError, match="is not a png"):
        draw("ogbench", empty)


def test_the_animation_ends_with_the_particles_at_their_returns(complete: Results) -> None:
    record = complete.toy("chain", "pcbf")
    assert record is not None
    assert record.flow is not None
    figure = Figure()
    particles = flow_chain.Particles(figure.subplots(), record.flow, 4)
    particles.move(1.0)
    ends = np.asarray(particles.dots.get_offsets())
    np.testing.assert_allclose(np.sort(ends[:, 0]), np.sort(record.flow.paths[4, -1]), rtol=1e-5)
    np.testing.assert_allclose(ends[:, 1], 1)


@pytest.mark.slow
def test_the_animation_is_small_moves_and_is_the_same_twice(complete: Results, empty: Results) -> None:
    artefact = artefacts.ANIMATIONS["flow_chain"]
    first, second = (artefact.render(complete)["gif"] for _ in range(2))
    assert first == second
    assert len(first) < 2_000_000
    with Image.open(io.BytesIO(first)) as picture:
        assert picture.n_frames == flow_chain.NUM_MOVES  # type: ignore[attr-defined]
    with Image.open(io.BytesIO(artefact.render(empty)["gif"])) as picture:
        assert getattr(picture, "n_frames", 1) == 1  # it says that there are no records


def test_the_command_lists_figures_and_suggests_the_nearest(empty: Results, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.figure_main(["--list"]) == 0
    listed = capsys.readouterr().out
    assert all(f"{label}\n" in listed for label in LABELS)
    with pytest.raises(SystemExit):
        cli.figure_main(["var_reduction", "--results", str(empty.root)])
    assert "Did you mean 'var-reduction'?" in capsys.readouterr().err


@pytest.mark.slow
def test_two_builds_in_two_processes_give_the_same_small_files(complete: Results, tmp_path: Path) -> None:
    labels = ["flowmap_combined", "flowmap_mc", "toy_sen"]  # arrows, rasterised areas, many panels, error bars
    folders = [tmp_path / name for name in ("first", "second")]
    builds = []
    for seed, folder in enumerate(folders):
        shutil.copytree(complete.root, folder)
        command = [sys.executable, "-m", "pcbf_analysis.cli", "figure", *labels]
        command += ["--results", str(folder), "--root", str(complete.repository), "--jobs", str(1 + seed)]
        # another date and another order of sets: neither may leave a trace
        other = {"PYTHONHASHSEED": str(seed), "SOURCE_DATE_EPOCH": str(1_000_000_000 * (seed + 1))}
        builds.append(subprocess.Popen(command, env=os.environ | other, stdout=subprocess.DEVNULL))
        time.sleep(1.1)
    assert [build.wait() for build in builds] == [0, 0]
    first, second = ({p.name: p.read_bytes() for p in (folder / "figures").iterdir()} for folder in folders)
    assert set(first) == {f"{label}.{name}" for label in labels for name in ("pdf", "png", "svg")}
    assert [name for name in first if first[name] != second[name]] == []
    large = {name: len(content) for name, content in first.items() if len(content) > 400_000}
    assert not [name for name in large if not name.endswith(".png")], large
    assert not [name for name, content in first.items() if b"CreationDate" in content or b"dc:date" in content]
