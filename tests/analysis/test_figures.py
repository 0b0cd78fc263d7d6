"""Figures: what they compute, what they show on whole and partial records, and their bytes."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from pcbf_analysis import artefacts, cli_artefacts, theme
from pcbf_analysis.figures import common, flowmap_mc
from pcbf_analysis.records import FlowRecord, Results, Setting, chosen_coefficient
from pcbf_core.mrp import MRPS

LABELS = list(artefacts.FIGURES)
ALL_SETTINGS = [Setting(env, state) for env, process in MRPS.items() for state in process.live_states]


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


@pytest.mark.parametrize("setting", ALL_SETTINGS, ids=lambda s: f"{s.env}-{s.state}")
def test_the_exact_histogram_has_mass_one_and_the_exact_cdf_its_corners(setting: Setting) -> None:
    law = setting.law
    edges, heights = common.exact_histogram(law, *common.RETURN_RANGES[setting.env], **common.CELLS[setting.env])
    widths = np.diff(edges)
    assert (heights * widths).sum() == pytest.approx(1, abs=1e-9)
    assert (widths >= common.CELLS[setting.env]["min_width"] - 1e-9).all()
    values, levels = common.exact_cdf(law, *common.CDF_RANGES[setting.env])
    assert (np.diff(values) >= 0).all()
    assert (np.diff(levels) >= 0).all()
    assert levels[0] == 0
    assert levels[-1] == pytest.approx(1)
    np.testing.assert_allclose(levels[2:-1:2], law.cdf(values[2:-1:2]))


def test_solitaires_first_cell_is_its_first_atom() -> None:
    edges, heights = common.exact_histogram(MRPS["solitaire"].return_law(0), -4, 10, min_width=0.4)
    np.testing.assert_allclose(edges[:3], [-0.5, 0.5, 1.45])  # atoms 0, 1, 1.9
    np.testing.assert_allclose(heights[:2], [1 / 6, (5 / 36) / 0.95])


def test_thinning_keeps_both_ends_and_density_peaks() -> None:
    assert common.thinned(1000, 3).tolist() == [0, 500, 999]  # 499.5 rounds to even
    assert common.thinned(4, 10).tolist() == [0, 1, 2, 3]
    values = np.linspace(0, 1, 5001)
    density = np.exp(-values)
    density[1237] = 50.0
    nothing = np.empty((0, 0))
    flow = FlowRecord(0.5, nothing, nothing, values[None], density[None], nothing, nothing, nothing)
    shown, heights = common.learned_density(flow, 0, 0.0, 1.0)
    assert heights.max() == 50.0
    assert len(shown) <= common.MAX_CURVE_POINTS + 2
    assert common.learned_density(flow, 0, 2.0, 3.0)[0].size == 0


def test_method_names_colours_and_order_live_in_one_place() -> None:
    expected = {"iqn", "codac", "floq", "fql", "iql", "value_flows", "pcbf", "pcbf-independent", "c51", "bc", "random"}
    assert set(theme.METHODS) == expected
    assert list(theme.METHODS)[-1] == "pcbf"
    looks = [(style.colour, style.marker) for style in theme.METHODS.values()]
    assert len(set(looks)) == len(looks)
    colours = [np.array(to_rgb(style.colour)) for style in theme.METHODS.values()]
    assert min(np.linalg.norm(a - b) for a, b in itertools.combinations(colours, 2)) > 0.15
    assert theme.method_order("iqn") < theme.method_order("value_flows") < theme.method_order("pcbf")
    assert theme.method_order("something else") == len(theme.METHODS)


def test_the_registry_names_the_records_each_figure_reads(complete: Results) -> None:
    assert set(LABELS) == {
        "flowmap_combined",
        "flowmap_mc",
        "toy_cdf_comparison",
        "cdf_comparison",
        "toy_sen",
        "hyper_abla",
        "var-reduction",
        "residual",
    }
    for artefact in artefacts.FIGURES.values():
        assert all((complete.root / name).exists() for name in artefact.inputs), artefact.label
        assert len(artefact.caption) > 100


@pytest.mark.parametrize("label", LABELS)
def test_whole_records_leave_no_panel_empty(label: str, complete: Results) -> None:
    assert panels_without_records(draw(label, complete)) == 0


@pytest.mark.parametrize(
    ("label", "in_partial", "in_empty"),
    [
        ("flowmap_combined", 2, 4),  # the chain's two states
        ("flowmap_mc", 18, 18),
        ("toy_cdf_comparison", 1, 3),
        ("cdf_comparison", 4, 6),
        ("toy_sen", 1, 2),
        ("hyper_abla", 1, 3),
        ("var-reduction", 0, 2),
        ("residual", 0, 4),
    ],
)
def test_panels_without_records_say_so(
    label: str, in_partial: int, in_empty: int, partial: Results, empty: Results
) -> None:
    assert panels_without_records(draw(label, partial)) == in_partial
    assert panels_without_records(draw(label, empty)) == in_empty


@pytest.mark.parametrize("label", ["toy_cdf_comparison", "cdf_comparison"])
def test_the_legend_names_the_chosen_coefficients(label: str, complete: Results) -> None:
    w1 = complete.w1()
    chosen = [chosen_coefficient(w1, env) for env in ("solitaire", "bernoulli", "chain")]
    names = ("Solitaire", "Bernoulli", "MC chain")
    parts = [f"{name} {value:.3g}" for name, value in zip(names, chosen, strict=True) if value is not None]
    assert len(parts) == 3
    assert f"PCBF (λ: {', '.join(parts)})" in legend_texts(draw(label, complete))


def test_the_star_marks_the_chosen_coefficient_and_the_dotted_line_the_paper(complete: Results) -> None:
    chain = draw("toy_sen", complete).axes[1]
    star = next(line for line in chain.lines if line.get_marker() == "*")
    assert np.asarray(star.get_xdata()).item() == chosen_coefficient(complete.w1(), "chain")
    dotted = next(line for line in chain.lines if line.get_linestyle() == ":")
    np.testing.assert_allclose(np.asarray(dotted.get_ydata())[0], (0.334 + 0.586 + 0.539 + 0.352) / 4)


def test_relative_loss_deviation_starts_at_one(complete: Results) -> None:
    relative = draw("var-reduction", complete).axes[0]
    curves = [np.asarray(line.get_ydata()) for line in relative.lines if line.get_marker() in ("o", "s", "^")]
    assert len(curves) == 3  # one per environment, with shared noise
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


def test_the_command_lists_figures_and_suggests_the_nearest(empty: Results, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli_artefacts.figure_main(["--list"]) == 0
    listed = capsys.readouterr().out
    assert all(f"{label}\n" in listed for label in LABELS)
    with pytest.raises(SystemExit):
        cli_artefacts.figure_main(["var_reduction", "--results", str(empty.root)])
    assert "Did you mean 'var-reduction'?" in capsys.readouterr().err


@pytest.mark.slow
def test_two_builds_in_two_processes_give_the_same_small_files(complete: Results, tmp_path: Path) -> None:
    labels = ["flowmap_combined", "flowmap_mc", "toy_sen"]  # arrows, rasterised areas, many panels, error bars
    folders = [tmp_path / name for name in ("first", "second")]
    builds = []
    for seed, folder in enumerate(folders):
        shutil.copytree(complete.root, folder)
        command = [sys.executable, "-m", "pcbf_analysis.cli_artefacts", "figure", *labels]
        command += ["--results", str(folder), "--paper", str(complete.paper)]
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
