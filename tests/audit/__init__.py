"""The audit: random problems from seeds, judged by a referee that shares no code with the library;
benchmarks/audit.py is the long one.
"""
