# Exact control: one job per small decision process and method; seeds share a job.

# Bump the number to have the runs of a method made again after a change of its code; `methods.tsv` has its own besides.
EXACT_VERSION = 1


rule exact:
    output:
        at_scale(layout.exact_run("{mdp}", "{agent}")),
    log:
        at_scale("logs/exact/{mdp}/{agent}.log"),
    benchmark:
        at_scale("benchmarks/exact/{mdp}/{agent}.jsonl")
    threads: 1
    params:
        version=lambda w: (EXACT_VERSION, PLAN.sheets.methods[base_method(w.agent)].version),
        settings=lambda w: canonical_json(exact_job(SETTINGS[w.scale], w.agent)),
        progress=at_scale(layout.progress_of_exact("{mdp}", "{agent}")),
    shell:
        "JAX_PLATFORMS=cpu NPROC={threads} OMP_NUM_THREADS={threads}"
        " pcbf-exact run {wildcards.mdp} {wildcards.agent} --settings {params.settings:q}"
        " --output {output:q} --progress {params.progress:q} > {log:q} 2>&1"


rule exact_collect:
    input:
        lambda w: exact_of(w.scale),
    output:
        at_scale(layout.EXACT_RESULTS),
        at_scale(layout.EXACT_OPTIMA),
    log:
        at_scale("logs/exact/collect.log"),
    priority: 10
    params:
        version=1,
    shell:
        "JAX_PLATFORMS=cpu pcbf-exact collect --results results/{wildcards.scale} > {log:q} 2>&1"
