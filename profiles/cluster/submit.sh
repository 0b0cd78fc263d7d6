#!/bin/sh
# Submit a job script to the queue that is here, PBS or LSF, and print the number it gets.
# submit.sh RULE THREADS MEGABYTES MINUTES GPUS SCRIPT
set -eu
rule=$1 threads=$2 memory=$3 minutes=$4 gpus=$5 script=$6
logs=.snakemake/cluster_logs
mkdir -p "$logs"
if command -v qsub >/dev/null; then
  select="select=1:ncpus=$threads:mem=${memory}mb"
  if [ "$gpus" -gt 0 ]; then select="$select:ngpus=$gpus"; fi
  time=$(printf '%02d:%02d:00' $((minutes / 60)) $((minutes % 60)))
  qsub -V -N "$rule" -l "$select" -l "walltime=$time" -j oe -o "$logs/" "$script"
elif command -v bsub >/dev/null; then
  set -- -J "$rule" -n "$threads" -M "${memory}MB" -R "span[hosts=1] rusage[mem=${memory}MB]" -W "$minutes"
  if [ "$gpus" -gt 0 ]; then set -- "$@" -gpu "num=$gpus"; fi
  bsub "$@" -o "$logs/%J.log" sh "$script" | sed -n 's/^Job <\([0-9]*\)>.*/\1/p'
else
  echo "submit.sh: there is neither qsub nor bsub here; start Snakemake where jobs can be submitted" >&2
  exit 1
fi
