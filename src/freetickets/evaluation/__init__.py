"""From an ensemble and data to saved predictions, and from these to every score."""

from ..predictions import Predictions
from .run import adjust, describe_run, evaluate_run, predict_dataset
from .sets import Request
from .summary import summarise

__all__ = [
    "Predictions", "Request", "adjust", "describe_run", "evaluate_run", "predict_dataset",
    "summarise",
]  # fmt: skip
