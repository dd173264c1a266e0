"""Kernels that skip the zeros: unstructured sparse convolutions and linear layers on the CPU."""
