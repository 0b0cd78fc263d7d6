"""What a run leaves on disk: its records, their form and their files."""
