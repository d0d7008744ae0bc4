"""How well densities predict: ksos side by side with the usual estimators, on known densities and
on real data.
"""
