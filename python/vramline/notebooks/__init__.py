"""Cells of a notebook: their memory, what holds it, and pages inside the notebook."""
