"""From an ensemble and data to saved predictions, and from those to every score."""

from .predictions import Predictions
from .run import adjust, describe_run, evaluate_run, predict_dataset

__all__ = ["Predictions", "adjust", "describe_run", "evaluate_run", "predict_dataset"]
