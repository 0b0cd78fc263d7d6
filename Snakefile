# Every table and figure, from training to report:
#
#   snakemake --cores all                              the laptop scale
#   snakemake --cores all --config scale=paper         the paper's own settings
#   snakemake results/smoke/figures/residual.pdf       one artefact and what it needs
#   snakemake --config scale=smoke 'toy={"num_steps": 50}'    a scale with some values replaced

from snakemake.utils import min_version

min_version("9.0")


include: "rules/common.smk"
include: "rules/toy.smk"
include: "rules/theory.smk"
include: "rules/paper.smk"


rule all:
    default_target: True
    input:
        expand(RECORDS, scale=SCALE),
        expand("results/{scale}/report/index.html", scale=SCALE),
        expand("results/{scale}/manifest.json", scale=SCALE),
        expand("results/{scale}/figures/{label}.pdf", scale=SCALE, label=FIGURES),
        expand("results/{scale}/tables/{label}.csv", scale=SCALE, label=TABLES),
