# Training on the control suite, one job per task, method and group of seeds; `ablate` is the same with one setting
# changed: λ for fig:ablations, or any other by the name of its target (docs/cost.md).
# Checkpoints, metrics and the records of the seeds are not declared: Snakemake removes declared files of a job that
# fails, and a job that is run again goes on from its checkpoint. What is declared is a receipt, written at the end.


rule train:
    input:
        data=lambda w: ancient(data_stamp(SETTINGS[w.scale], PLAN.sheets, w.task)),
    output:
        "results/{scale}/receipts/{task}/{method}/{group}.json",
    log:
        "results/{scale}/logs/train/{task}/{method}/{group}.log",
    benchmark:
        "results/{scale}/benchmarks/train/{task}/{method}/{group}.jsonl"
    wildcard_constraints:
        method="|".join(PLAN.sheets.methods),
    priority: TRAIN_PRIORITY
    retries: 1
    threads: 1
    resources:
        gpu=lambda w: SETTINGS[w.scale]["control"]["gpus_per_job"],
        mem_mb=16000,
        runtime=lambda w, attempt: 1440 * attempt,  # minutes, for clusters; a job that meets it goes on when run again
    params:
        version=lambda w: PLAN.sheets.methods[w.method].version,
        gpus=lambda w: SETTINGS[w.scale]["control"]["gpus_per_job"],
        seeds=lambda w: " ".join(map(str, group_seeds(w.group))),
        job=lambda w: compact_json(train_job(SETTINGS[w.scale], PLAN.sheets, w.task, w.method)),
        data=lambda w: data_folder(SETTINGS[w.scale]),
        out="results/{scale}",
    shell:
        "PYTHONUNBUFFERED=1 NPROC={threads} OMP_NUM_THREADS={threads}"
        " pcbf-lease {resources.gpu} --needed {params.gpus} -- pcbf-train {wildcards.task} {wildcards.method}"
        " --seeds {params.seeds} --job {params.job:q} --method-version {params.version} --data-dir {params.data:q}"
        " --out {params.out:q} --receipt {output:q} --replace > {log:q} 2>&1"


use rule train as ablate with:
    output:
        "results/{scale}/ablations/{change}/receipts/{task}/{method}/{group}.json",
    log:
        "results/{scale}/ablations/{change}/logs/train/{task}/{method}/{group}.log",
    benchmark:
        "results/{scale}/ablations/{change}/benchmarks/train/{task}/{method}/{group}.jsonl"
    params:
        version=lambda w: PLAN.sheets.methods[w.method].version,
        gpus=lambda w: SETTINGS[w.scale]["control"]["gpus_per_job"],
        seeds=lambda w: " ".join(map(str, group_seeds(w.group))),
        job=lambda w: compact_json(train_job(SETTINGS[w.scale], PLAN.sheets, w.task, w.method, w.change)),
        data=lambda w: data_folder(SETTINGS[w.scale]),
        out="results/{scale}/ablations/{change}",
