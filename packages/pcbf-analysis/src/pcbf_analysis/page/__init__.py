"""What the report shows besides tables and figures: findings, the λ explorer, charts of runs, the workflow."""
