# Training on the three Markov reward processes, one job per process and method; seeds and coefficients share a job.

# Bump a number to have the runs of that method made again after a change of its code.
TOY_VERSION = {"pcbf": 1, "pcbf-independent": 1, "value_flows": 1}


rule toy:
    output:
        "results/{scale}/toy/runs/{env}/{method}.npz",
    log:
        "results/{scale}/logs/toy/{env}/{method}.log",
    benchmark:
        "results/{scale}/benchmarks/toy/{env}/{method}.jsonl"
    priority: toy_priority
    threads: 1
    params:
        version=lambda w: TOY_VERSION[w.method],
        settings=lambda w: compact_json(toy_job(SETTINGS[w.scale], w.env, w.method)),
        progress="results/{scale}/progress/toy-{env}-{method}.json",
    shell:
        "JAX_PLATFORMS=cpu NPROC={threads} OMP_NUM_THREADS={threads}"
        " pcbf-toy run {wildcards.env} {wildcards.method} --settings {params.settings:q}"
        " --output {output:q} --progress {params.progress:q} > {log:q} 2>&1"


rule toy_collect:
    input:
        toy_runs(),
    output:
        "results/{scale}/toy/w1.csv",
        "results/{scale}/toy/loss_std.csv",
    log:
        "results/{scale}/logs/toy/collect.log",
    priority: 10
    params:
        version=1,
    shell:
        "pcbf-toy collect --results results/{wildcards.scale} > {log:q} 2>&1"
