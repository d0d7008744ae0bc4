"""Rivals of robust learning in an MMD ball, written from the papers, on problems where the answer
is known by simulation.
"""
