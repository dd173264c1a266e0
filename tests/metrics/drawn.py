"""Predictions as members make them, drawn at random."""

import numpy as np
from scipy.special import log_softmax


def draw(members, samples, classes, spread=3.0, skill=0.0, seed=0):
    """Log-probabilities whose logits lean to the truth by `skill`, and labels."""
    rng = np.random.default_rng([members, samples, classes, seed])
    labels = np.random.default_rng([samples, classes]).integers(0, classes, samples)
    logits = spread * rng.normal(size=(members, samples, classes)) + skill * np.eye(classes)[labels]
    return log_softmax(logits, axis=-1), labels
