"""Measure ratios on this machine: sparse training against dense, the loader against a step."""

from __future__ import annotations

import argparse


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of this command."""


def run(parsed: argparse.Namespace) -> None:
    """Measures."""
