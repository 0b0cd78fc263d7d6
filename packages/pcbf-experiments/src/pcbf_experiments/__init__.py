"""What produces records: suites and their data, simulators, evaluation, the run loop, toys, theory, the campaign.

Modules are imported where they are needed, so that commands which plan or watch start without JAX.
"""
