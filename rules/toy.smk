# Training on the Markov reward processes, one job per process and method; seeds and coefficients share a job.

# Bump a number to have the runs of that method made again after a change of its code.
TOY_VERSION = {"pcbf": 2, "pcbf-independent": 2, "value_flows": 2, "pcbf_flow": 2, "flow_iqn": 3, "iqn": 3, "c51": 3}


rule toy:
    output:
        at_scale(layout.toy_run("{process}", "{method}")),
    log:
        at_scale("logs/toy/{process}/{method}.log"),
    benchmark:
        at_scale("benchmarks/toy/{process}/{method}.jsonl")
    priority: toy_priority
    threads: 1
    params:
        version=lambda w: TOY_VERSION[w.method],
        settings=lambda w: canonical_json(toy_job(SETTINGS[w.scale], w.process, w.method)),
        progress=at_scale(layout.progress_of_toy("{process}", "{method}")),
    shell:
        "JAX_PLATFORMS=cpu NPROC={threads} OMP_NUM_THREADS={threads}"
        " pcbf-toy run {wildcards.process} {wildcards.method} --settings {params.settings:q}"
        " --output {output:q} --progress {params.progress:q} > {log:q} 2>&1"


rule toy_collect:
    input:
        lambda w: toys_of(w.scale),
    output:
        at_scale(layout.TOY_W1),
        at_scale(layout.TOY_TUNING_W1),
        at_scale(layout.TOY_LOSS_STD),
    log:
        at_scale("logs/toy/collect.log"),
    priority: 10
    params:
        version=1,
    shell:
        "pcbf-toy collect --results results/{wildcards.scale} > {log:q} 2>&1"
