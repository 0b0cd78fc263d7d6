"""The commands. Each parses its arguments before it imports what is slow."""
