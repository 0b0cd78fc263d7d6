"""Datasets: downloaded or made here, verified, and brought into the form that the trainer samples from."""
