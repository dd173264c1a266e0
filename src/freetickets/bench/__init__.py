"""Benchmarks: ratios of two sides measured in one run, never a time alone."""

_TRAIN = ("masks", "loader", "exploration", "edst", "sparsity", "small-nets", "medium", "memory")
# What `freetickets bench` can measure, in its order: modules and their functions. Names only, with
# hyphens: they are checked without torch.
NAMES = {
    "kernels": ("wide", "dense", "small", "linear", "other"),
    "train": _TRAIN,
    "profile": ("bound", "steps", "layers", "operators"),
    "infer": ("ensemble", "members", "latency", "pruned"),
    "metrics": ("scores", "ood", "saved"),
    "side-by-side": ("members",),
    "checkpoint": ("overhead",),
    "choose": ("costs",),
}

# These take long and have no bar: they are measured only if they are named.
ON_REQUEST = ("sparsity", "medium", "pruned")
