"""Hooks that let a user's own training write our run record and stop at a collapse."""
