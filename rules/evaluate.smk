# Evaluation of what training left, one job per training job, on CPU cores of its own: while simulators run here, the
# next training job has the GPU. Every evaluation is kept as soon as it is made, so that a job that is killed loses
# nothing. How agents are judged is a parameter of these jobs only: another number of episodes trains nothing.


rule evaluate:
    input:
        job_files().receipt.as_posix(),
    output:
        job_files().evaluation_receipt.as_posix(),
    log:
        job_files().log("evaluate").as_posix(),
    benchmark:
        job_files().benchmark("evaluate").as_posix()
    wildcard_constraints:
        method="|".join(PLAN.sheets.methods),
    priority: lambda w: EVALUATE_PRIORITY + domain_turn(w)
    retries: 1
    threads: 1
    resources:
        gpu=0,
        mem_mb=8000,
        runtime=lambda w, attempt: 1440 * attempt,
    params:
        seeds=lambda w: " ".join(map(str, layout.group_seeds(w.group))),
        settings=lambda w: canonical_json(evaluate_job(SETTINGS[w.scale])),
        keep=lambda w: SETTINGS[w.scale]["control"]["keep_snapshots"],
        out=results_folder,
        is_stale=lambda w: is_stale(w, "evaluation_receipt"),
    shell:
        "PYTHONUNBUFFERED=1 NPROC={threads} OMP_NUM_THREADS={threads} JAX_PLATFORMS=cpu CUDA_VISIBLE_DEVICES="
        " pcbf-evaluate {wildcards.task} {wildcards.method} --seeds {params.seeds} --settings {params.settings:q}"
        " --keep {params.keep} --workers {threads} --out {params.out:q} --receipt {output:q} > {log:q} 2>&1"


use rule evaluate as evaluate_ablation with:
    input:
        job_files(change=True).receipt.as_posix(),
    output:
        job_files(change=True).evaluation_receipt.as_posix(),
    log:
        job_files(change=True).log("evaluate").as_posix(),
    benchmark:
        job_files(change=True).benchmark("evaluate").as_posix()


rule collect:
    input:
        lambda w: evaluated(w.scale),
    output:
        at_scale(layout.CONTROL_EVALUATIONS),
        at_scale(layout.CONTROL_CONFIGS),
    log:
        at_scale("logs/collect.log"),
    priority: ARTEFACT_PRIORITY
    localrule: True
    params:
        version=1,
    shell:
        "pcbf-collect --results results/{wildcards.scale} > {log:q} 2>&1"
