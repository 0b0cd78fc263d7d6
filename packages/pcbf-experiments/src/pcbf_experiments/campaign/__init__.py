"""Campaigns: the plan of a scale, where it stands, what it takes, who has which GPU, and what is published of it.

Nothing here imports JAX: what the pipeline asks at every start must answer fast.
"""
