"""One training run: settings, the loop, checkpoints, snapshots and what judges them."""
