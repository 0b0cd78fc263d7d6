"""A step at laptop size as a share of the matmul peak and against its plain form, in a process of its own: threads are
counted when JAX starts.

Times are those of the core, so that other work on the machine does not count.

NPROC=1 python benchmarks/one_core.py "pcbf, a' = batch action"
"""

from __future__ import annotations

import json
import sys
import time

from test_updates import CASES, fast_steps, plain_steps, update_flops
from work import agent_of, best_of_each, peak_gflops, product_chain

NUM_STEPS, NUM_PLAIN = 16, 4


def main(case: str) -> dict[str, float]:
    """Milliseconds of a step, its share of the peak of this process, and how much faster it is than its plain form."""
    method, settings = CASES[case]
    agent = agent_of(method, "3x128", **settings)
    work = {
        "fast": fast_steps(agent, NUM_STEPS),
        "plain": plain_steps(agent, NUM_PLAIN),
        "product": product_chain(),
    }
    seconds = best_of_each(work, rounds=20, clock=time.process_time)
    gflops = update_flops(agent) / 1e9
    step_seconds = seconds["fast"] / NUM_STEPS
    share = gflops / step_seconds / peak_gflops(seconds["product"])
    return {
        "update_ms": round(1e3 * step_seconds, 2),
        "share_of_peak": round(share, 3),
        "speedup_over_plain": round(seconds["plain"] / NUM_PLAIN / step_seconds, 2),
    }


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1])))
