"""What produces records: tasks, data, runs, toy experiments and checks of the theory."""
