# Calibration: the episodes of a behaviour, then one job per dataset and critic; seeds share a job.

# Bump a number to have the runs made again after a change of the critics' code, or the episodes after one of a behaviour.
CALIBRATION_VERSION, EPISODES_VERSION = 1, 1


rule calibration_data:
    input:
        lambda w: ancient(calibration_origin(w)),
    output:
        layout.calibration_data("{source}", "{episodes}", "{length}", "{seed}"),
    log:
        "data/local/logs/{source}-episodes{episodes}-length{length}-seed{seed}.log",
    priority: DATA_PRIORITY
    threads: 1
    params:
        version=EPISODES_VERSION,
        folder=lambda w: layout.local_data(w.episodes, w.length, w.seed),
    shell:
        "JAX_PLATFORMS=cpu pcbf-calibrate data {wildcards.source} --episodes {wildcards.episodes}"
        " --length {wildcards.length} --seed {wildcards.seed} --data-dir {params.folder:q} --output {output:q}"
        " > {log:q} 2>&1"


rule calibrate:
    input:
        lambda w: ancient(episodes_of(w.scale, w.source)),
    output:
        at_scale(layout.calibration_run("{source}", "{critic}")),
    log:
        at_scale("logs/calibration/{source}/{critic}.log"),
    benchmark:
        at_scale("benchmarks/calibration/{source}/{critic}.jsonl")
    threads: 1
    params:
        version=CALIBRATION_VERSION,
        settings=lambda w: canonical_json(calibration_job(SETTINGS[w.scale], w.source, w.critic)),
        progress=at_scale(layout.progress_of_calibration("{source}", "{critic}")),
    shell:
        "JAX_PLATFORMS=cpu NPROC={threads} OMP_NUM_THREADS={threads}"
        " pcbf-calibrate run {wildcards.source} {wildcards.critic} --data {input:q} --settings {params.settings:q}"
        " --output {output:q} --progress {params.progress:q} > {log:q} 2>&1"


rule calibration_collect:
    input:
        lambda w: calibration_of(w.scale),
    output:
        at_scale(layout.CALIBRATION_RESULTS),
    log:
        at_scale("logs/calibration/collect.log"),
    priority: 10
    params:
        version=1,
    shell:
        "pcbf-calibrate collect --results results/{wildcards.scale} > {log:q} 2>&1"
