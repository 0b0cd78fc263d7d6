# The theory as executable checks.


rule theory:
    input:
        toy_runs(["solitaire"], ["pcbf"]),
    output:
        at_scale(layout.THEORY_CHECKS),
        at_scale(layout.THEORY_POPULATION),
    log:
        at_scale("logs/theory.log"),
    benchmark:
        at_scale("benchmarks/theory.jsonl")
    threads: 1
    params:
        version=3,  # bump to have the checks made again after a change of their code
        settings=lambda w: canonical_json(SETTINGS[w.scale]["theory"]),
    shell:
        "JAX_PLATFORMS=cpu NPROC={threads} OMP_NUM_THREADS={threads}"
        " pcbf-theory --results results/{wildcards.scale} --settings {params.settings:q} > {log:q} 2>&1"
