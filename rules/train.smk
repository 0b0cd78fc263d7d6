# Training on the control suite, one job per task, method and group of seeds; `ablate` is the same with one setting
# changed: λ for fig:ablations, a trial of the search for settings, or any other by the name of its target (docs/cost.md).
# Checkpoints, snapshots, metrics and the records of the seeds are not declared: Snakemake removes declared files of a
# job that fails, and a job that is run again resumes from its checkpoint. What is declared is a receipt, written at the
# end, that names the records with their hashes; one whose records are gone is removed before jobs are planned.
# A method with `proposal_training: frozen` waits for behaviour cloning of the same seeds and takes its last snapshots;
# in the search for settings that is the first trial of behaviour cloning.


rule train:
    input:
        data=data_of,
        proposal=lambda w: [files.receipt.as_posix() for files in cloning_jobs(w)],
    output:
        job_files().receipt.as_posix(),
    log:
        job_files().log("train").as_posix(),
    benchmark:
        job_files().benchmark("train").as_posix()
    wildcard_constraints:
        method="|".join(PLAN.sheets.methods),
    priority: lambda w: TRAIN_PRIORITY + domain_turn(w)
    retries: 1
    threads: 1
    resources:
        gpu=lambda w: SETTINGS[w.scale]["control"]["gpus_per_job"],
        mem_mb=16000,
        runtime=lambda w, attempt: 1440 * attempt,  # minutes, for clusters; a job that meets it goes on when run again
    params:
        version=lambda w: PLAN.sheets.methods[w.method].version,
        gpus=lambda w: SETTINGS[w.scale]["control"]["gpus_per_job"],
        seeds=lambda w: " ".join(map(str, layout.group_seeds(w.group))),
        job=lambda w: canonical_json(train_job(SETTINGS[w.scale], PLAN.sheets, w.task, w.method, w.get("change"))),
        data=lambda w: data_folder(SETTINGS[w.scale]),
        out=results_folder,
        proposal=proposal_option,
        is_stale=lambda w: is_stale(w, "receipt"),
    shell:
        "PYTHONUNBUFFERED=1 NPROC={threads} OMP_NUM_THREADS={threads}"
        " pcbf-lease {resources.gpu} --needed {params.gpus} -- pcbf-train {wildcards.task} {wildcards.method}"
        " --seeds {params.seeds} --job {params.job:q} --method-version {params.version} --data-dir {params.data:q}"
        " --out {params.out:q} --receipt {output:q} --replace {params.proposal} > {log:q} 2>&1"


use rule train as ablate with:
    output:
        job_files(change=True).receipt.as_posix(),
    log:
        job_files(change=True).log("train").as_posix(),
    benchmark:
        job_files(change=True).benchmark("train").as_posix()
