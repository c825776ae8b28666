"""Kernels in NumPy alone."""
