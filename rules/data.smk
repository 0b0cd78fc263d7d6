# Datasets of the control suite: official files fetched, or files generated here in the same form; then verified.
# Only the outcome of the verification is declared: Snakemake removes the declared files of a job that fails, and an
# interrupted download should go on where it was.


rule fetch_data:
    output:
        "data/raw/verified/{dataset}.txt",
    log:
        "data/raw/logs/{dataset}.log",
    retries: 2
    threads: 1
    shell:
        "(pcbf-data fetch {wildcards.dataset:q} --data-dir data/raw"
        " && pcbf-data verify {wildcards.dataset:q} --data-dir data/raw > {output:q}) > {log:q} 2>&1"


rule make_data:
    output:
        "data/local/episodes{episodes}-length{length}-seed{seed}/verified/{dataset}.txt",
    log:
        "data/local/episodes{episodes}-length{length}-seed{seed}/logs/{dataset}.log",
    priority: DATA_PRIORITY
    threads: min(8, max(1, (workflow.cores or 1) // 2))  # the number does not change the data
    params:
        folder="data/local/episodes{episodes}-length{length}-seed{seed}",
    shell:
        "(JAX_PLATFORMS=cpu pcbf-data make-local {wildcards.dataset:q} --episodes {wildcards.episodes}"
        " --length {wildcards.length} --seed {wildcards.seed} --workers {threads} --overwrite"
        " --data-dir {params.folder:q}"
        " && JAX_PLATFORMS=cpu pcbf-data verify {wildcards.dataset:q} --data-dir {params.folder:q} > {output:q})"
        " > {log:q} 2>&1"
