"""Figures of a study, drawn from its outcomes and run records; see `catalogue` for what there is."""
