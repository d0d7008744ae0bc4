"""Conditional densities beside boosting and forests: likelihood, CRPS, pinball loss, coverage,
width and time, cell by cell.
"""
