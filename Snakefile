# Every table and figure, from training to report:
#
#   snakemake --cores all                              the laptop scale
#   snakemake --cores all --config scale=paper         the paper's own settings
#   snakemake results/smoke/figures/residual.pdf       one artefact and what it needs
#   snakemake --config scale=smoke 'toy={"num_steps": 50}'    a scale with some values replaced
#   snakemake --config scale=paper domains=scene-play 'methods=[pcbf, iql]'    only these runs of the scale
#   snakemake runs --config scale=paper                runs and their evaluations only; `data` gets the datasets only
#   snakemake tune --config scale=desk                 the search for settings only, if the scale has one

from snakemake.utils import min_version

min_version("9.0")


# Used only with `--software-deployment-method apptainer`; containers/pcbf.def is its recipe (docs/campaign.md).
container: "containers/pcbf.sif"


include: "rules/common.smk"
include: "rules/toy.smk"
include: "rules/exact.smk"
include: "rules/calibration.smk"
include: "rules/theory.smk"
include: "rules/data.smk"
include: "rules/train.smk"
include: "rules/evaluate.smk"
include: "rules/paper.smk"


SELECTED = receipts(planned_files(SCALE, PLAN.selected()))
TRIALS = [job for job in PLAN.selected() if layout.is_tuning(job.change)]


rule all:
    default_target: True
    input:
        SELECTED,
        everything(SCALE) if not PLAN.selection else [],


rule runs:
    input:
        SELECTED,


rule tune:
    input:
        receipts(planned_files(SCALE, TRIALS)),


rule data:
    input:
        sorted({data_stamp(SETTINGS[SCALE], PLAN.sheets, job.task) for job in PLAN.selected()}),


MADE = [path for scale in SCALES for path in everything(scale)]
if workflow.is_main_process and (faults := target_faults(ASKED.targets, ["all", "runs", "tune", "data"], MADE)):
    sys.exit("\n".join(faults))
if workflow.is_main_process and "tune" in ASKED.targets and not TRIALS:
    sys.exit(f"tune: scale {SCALE} has no trials to run; give config/scales/{SCALE}.yaml a section control.tuning")
