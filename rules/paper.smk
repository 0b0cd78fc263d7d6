# Figures, tables, manifest and report, all made from records. They cost seconds, so that any change of the
# analysis code makes them again; nothing here trains.

W1 = "results/{scale}/toy/w1.csv"
LOSS_STD = "results/{scale}/toy/loss_std.csv"
CHECKS = "results/{scale}/theory/checks.csv"

# Which records each artefact is made from, by the paper's labels.
FIGURES = {
    "flowmap_combined": toy_runs(methods=["pcbf"]),
    "toy_cdf_comparison": [W1, *toy_runs(methods=["pcbf", "value_flows"])],
    "toy_sen": [W1],
    "var-reduction": [LOSS_STD],
    "hyper_abla": [W1],
    "cdf_comparison": [W1, *toy_runs(methods=["pcbf", "value_flows"])],
    "flowmap_mc": toy_runs(["chain"], ["pcbf"]),
    "residual": toy_runs(["solitaire"], ["pcbf", "pcbf-independent"]),
}
TABLES = {
    "toy_w1": [W1],
    "toy_w1_sweep": [W1],
    "theory_checks": [CHECKS],
}
RECORDS = expand("results/{{scale}}/{name}", name=record_names())


rule figure:
    input:
        lambda w: expand(FIGURES[w.label], scale=w.scale),
    output:
        multiext("results/{scale}/figures/{label}", ".pdf", ".png", ".svg"),
    log:
        "results/{scale}/logs/figures/{label}.log",
    wildcard_constraints:
        label="|".join(FIGURES),
    priority: 20
    params:
        code=ANALYSIS_CODE,
    shell:
        "pcbf-figure {wildcards.label} --results results/{wildcards.scale} > {log:q} 2>&1"


rule table:
    input:
        lambda w: expand(TABLES[w.label], scale=w.scale),
    output:
        multiext("results/{scale}/tables/{label}", ".csv", ".tex", ".md"),
    log:
        "results/{scale}/logs/tables/{label}.log",
    wildcard_constraints:
        label="|".join(TABLES),
    priority: 20
    params:
        code=ANALYSIS_CODE,
    shell:
        "pcbf-table {wildcards.label} --results results/{wildcards.scale} > {log:q} 2>&1"


rule manifest:
    input:
        RECORDS,
    output:
        "results/{scale}/manifest.json",
    log:
        "results/{scale}/logs/manifest.log",
    params:
        settings=lambda w: compact_json(SETTINGS[w.scale]),
    shell:
        "pcbf-manifest --results results/{wildcards.scale} --settings {params.settings:q} > {log:q} 2>&1"


rule report:
    input:
        RECORDS,
        "results/{scale}/manifest.json",
        expand("results/{{scale}}/figures/{label}.svg", label=FIGURES),
        expand("results/{{scale}}/tables/{label}.csv", label=TABLES),
    output:
        "results/{scale}/report/index.html",
    log:
        "results/{scale}/logs/report.log",
    params:
        code=ANALYSIS_CODE,
    shell:
        "pcbf-report --results results/{wildcards.scale} > {log:q} 2>&1"
