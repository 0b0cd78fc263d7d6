# Pictures of the tasks, then figures, tables, claims, manifest and report, all made from records. They cost seconds, so
# that any change of the analysis code makes them again; nothing here trains.

W1 = [at_scale(layout.TOY_W1), at_scale(layout.TOY_TUNING_W1)]
LOSS_STD = at_scale(layout.TOY_LOSS_STD)
EXACT = [at_scale(layout.EXACT_RESULTS), at_scale(layout.EXACT_OPTIMA)]
CALIBRATION = at_scale(layout.CALIBRATION_RESULTS)
CHECKS, POPULATION = at_scale(layout.THEORY_CHECKS), at_scale(layout.THEORY_POPULATION)
CONTROL = [at_scale(layout.CONTROL_EVALUATIONS), at_scale(layout.CONTROL_CONFIGS)]
PICTURES = at_scale(layout.RENDERED)
CLAIMS = [at_scale(name) for name in layout.CLAIMS]

# Artefacts by the paper's labels, in groups that one process makes from the same records.
FIGURES = {
    "residual": (["residual"], toy_runs(["solitaire"], ["pcbf", "pcbf-independent"])),
    "flows": (
        ["flowmap_combined", "flowmap_mc", "flow_chain", "pcbf-architecture"],
        toy_runs(PAPER_PROCESSES, ["pcbf"]),
    ),
    "distances": (
        ["toy_cdf_comparison", "cdf_comparison", "toy_sen", "hyper_abla", "var-reduction", "flow_path"],
        [*W1, LOSS_STD, POPULATION],
    ),
    "exact": (["exact_control"], EXACT),
    "calibration": (["calibration"], [CALIBRATION]),
    "control": (["performance_profiles", "ablations"], CONTROL),
    "pictures": (["ogbench"], [PICTURES]),
}
TABLES = {
    "overview": (["overview"], [*W1, *EXACT, CALIBRATION, *CONTROL]),
    "toy": (["toy_w1", "toy_w1_sweep", "toy_contest", "toy_paired", "theory_checks"], [*W1, CHECKS]),
    "exact": (["exact_control", "exact_risk", "exact_paired", "ablations_exact"], EXACT),
    "calibration": (["calibration", "calibration_paired", "ablations_calibration"], [CALIBRATION]),
    "control": (
        [
            "aggregated",
            "fullogbench_comparison",
            "control_suite",
            "probability_of_improvement",
            "performance_profiles",
            "cost",
            "setting_effects",
            "tuning",
            "hyperparameters",
            "domain_hyperparameters",
        ],
        CONTROL,
    ),
    "comparison": (["paper_comparison"], [*W1, *CONTROL]),
}
RECORDS = [*[at_scale(name) for name in FIXED], *CONTROL, PICTURES]


rule render:
    output:
        PICTURES,
    log:
        at_scale("logs/render.log"),
    params:
        tasks=lambda w: SETTINGS[w.scale]["renders"],
        folder=at_scale(layout.RENDERS),
    shell:
        # without OpenGL there are no pictures, which is no reason to stop
        "(pcbf-render {params.tasks} --out {params.folder:q}"
        " || pcbf-render {params.tasks} --out {params.folder:q} --sizes-only"
        " || echo 'not everything could be rendered') > {log:q} 2>&1"
        " && (cd {params.folder:q} && find . -name '*.png' -o -name '*.json' | sort) > {output:q}"


for name, (labels, entries) in FIGURES.items():

    rule:
        name:
            f"figures_{name}"
        input:
            entries,
        output:
            figure_files(labels),
        log:
            at_scale(f"logs/figures/{name}.log"),
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
            entries,
        output:
            table_files(labels),
        log:
            at_scale(f"logs/tables/{name}.log"),
        priority: ARTEFACT_PRIORITY
        localrule: True
        params:
            labels=labels,
            code=ANALYSIS_CODE,
        shell:
            "pcbf-table {params.labels} --results results/{wildcards.scale} > {log:q} 2>&1"


rule claims:
    input:
        RECORDS,
    output:
        CLAIMS,
    log:
        at_scale("logs/claims.log"),
    priority: ARTEFACT_PRIORITY
    localrule: True
    params:
        code=ANALYSIS_CODE,
    shell:
        "pcbf-claims --results results/{wildcards.scale} > {log:q} 2>&1"


rule manifest:
    input:
        lambda w: toys_of(w.scale),
        lambda w: exact_of(w.scale),
        lambda w: calibration_of(w.scale),
        RECORDS,
    output:
        at_scale(layout.MANIFEST),
    log:
        at_scale("logs/manifest.log"),
    localrule: True
    params:
        settings=lambda w: canonical_json(SETTINGS[w.scale]),
    shell:
        "pcbf-manifest --results results/{wildcards.scale} --settings {params.settings:q} > {log:q} 2>&1"


rule report:
    input:
        RECORDS,
        CLAIMS,
        at_scale(layout.MANIFEST),
        figure_files(labels_of(FIGURES), ["svg"]),
        table_files(labels_of(TABLES), ["csv"]),
    output:
        at_scale(layout.REPORT),
    log:
        at_scale("logs/report.log"),
    localrule: True
    params:
        code=ANALYSIS_CODE,
    shell:
        "pcbf-report --results results/{wildcards.scale} > {log:q} 2>&1"


# What `all` makes besides training runs and toys; the scale stays open.
EVERYTHING = [
    *RECORDS,
    *CLAIMS,
    at_scale(layout.MANIFEST),
    at_scale(layout.REPORT),
    *figure_files(labels_of(FIGURES)),
    *table_files(labels_of(TABLES)),
]
