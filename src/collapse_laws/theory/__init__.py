"""The paper's formulas as pure, vectorised functions (Section 3, Appendix A). All norms are RMS per coordinate."""
