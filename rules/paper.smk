# Pictures of the tasks, then figures, tables, claims, manifest and report, all made from records. They cost seconds, so
# that any change of the analysis code makes them again; nothing here trains.

W1 = "results/{scale}/toy/w1.csv"
LOSS_STD = "results/{scale}/toy/loss_std.csv"
CHECKS = "results/{scale}/theory/checks.csv"
PICTURES = "results/{scale}/renders/rendered.txt"
CLAIMS = expand("results/{{scale}}/claims.{format}", format=["csv", "md"])

# Artefacts by the paper's labels, in groups that one process makes from the same records: paths, or `control_runs` and
# `ablation_runs` for the training runs of the scale.
FIGURES = {
    "residual": (["residual"], toy_runs(["solitaire"], ["pcbf", "pcbf-independent"])),
    "flows": (["flowmap_combined", "flowmap_mc", "flow_chain", "pcbf-architecture"], toy_runs(methods=["pcbf"])),
    "distances": (
        ["toy_cdf_comparison", "cdf_comparison", "toy_sen", "hyper_abla", "var-reduction"],
        [W1, LOSS_STD, *toy_runs(methods=["pcbf", "value_flows"])],
    ),
    "control": (["performance_profiles"], [control_runs]),
    "ablations": (["ablations"], [ablation_runs, control_runs]),
    "pictures": (["ogbench"], [PICTURES]),
}
TABLES = {
    "toy": (["toy_w1", "toy_w1_sweep", "theory_checks"], [W1, CHECKS]),
    "control": (
        [
            "aggregated",
            "fullogbench_comparison",
            "control_suite",
            "probability_of_improvement",
            "performance_profiles",
            "cost",
            "hyperparameters",
            "domain_hyperparameters",
        ],
        [control_runs],
    ),
    "comparison": (["paper_comparison"], [W1, control_runs]),
    "ablations": (["setting_effects"], [control_runs, ablation_runs]),
}
RECORDS = [*expand("results/{{scale}}/{name}", name=fixed_names()), control_runs, ablation_runs, PICTURES]


rule render:
    output:
        "results/{scale}/renders/rendered.txt",
    log:
        "results/{scale}/logs/render.log",
    params:
        tasks=lambda w: SETTINGS[w.scale]["renders"],
        folder="results/{scale}/renders",
        render="python -m pcbf_baselines.renders",
    shell:
        # without OpenGL there are no pictures, which is no reason to stop
        "({params.render} {params.tasks} --out {params.folder:q}"
        " || {params.render} {params.tasks} --out {params.folder:q} --sizes-only"
        " || echo 'not everything could be rendered') > {log:q} 2>&1"
        " && (cd {params.folder:q} && find . -name '*.png' -o -name '*.json' | sort) > {output:q}"


for name, (labels, entries) in FIGURES.items():

    rule:
        name:
            f"figures_{name}"
        input:
            made_from(entries),
        output:
            figure_files(labels),
        log:
            f"results/{{scale}}/logs/figures/{name}.log",
        priority: ARTEFACT_PRIORITY
        localrule: True
        params:
            labels=labels,
            code=ANALYSIS_CODE,
        shell:
            "pcbf-figure {params.labels} --results results/{wildcards.scale} > {log:q} 2>&1"


for name, (labels, entries) in TABLES.items():

    rule:
        name:
            f"tables_{name}"
        input:
            made_from(entries),
        output:
            table_files(labels),
        log:
            f"results/{{scale}}/logs/tables/{name}.log",
        priority: ARTEFACT_PRIORITY
        localrule: True
        params:
            labels=labels,
            code=ANALYSIS_CODE,
        shell:
            "pcbf-table {params.labels} --results results/{wildcards.scale} > {log:q} 2>&1"


rule claims:
    input:
        made_from(RECORDS),
    output:
        CLAIMS,
    log:
        "results/{scale}/logs/claims.log",
    priority: ARTEFACT_PRIORITY
    localrule: True
    params:
        code=ANALYSIS_CODE,
    shell:
        "pcbf-claims --results results/{wildcards.scale} > {log:q} 2>&1"


rule manifest:
    input:
        made_from(RECORDS),
    output:
        "results/{scale}/manifest.json",
    log:
        "results/{scale}/logs/manifest.log",
    localrule: True
    params:
        settings=lambda w: compact_json(SETTINGS[w.scale]),
    shell:
        "pcbf-manifest --results results/{wildcards.scale} --settings {params.settings:q} > {log:q} 2>&1"


rule report:
    input:
        made_from(RECORDS),
        CLAIMS,
        "results/{scale}/manifest.json",
        figure_files(labels_of(FIGURES), ["svg"]),
        table_files(labels_of(TABLES), ["csv"]),
    output:
        "results/{scale}/report/index.html",
    log:
        "results/{scale}/logs/report.log",
    localrule: True
    params:
        code=ANALYSIS_CODE,
    shell:
        "pcbf-report --results results/{wildcards.scale} > {log:q} 2>&1"


# What `all` makes of the chosen scale besides its training runs.
EVERYTHING = inputs_of(
    [
        *RECORDS,
        *CLAIMS,
        "results/{scale}/manifest.json",
        "results/{scale}/report/index.html",
        *figure_files(labels_of(FIGURES)),
        *table_files(labels_of(TABLES)),
    ],
    SCALE,
)
