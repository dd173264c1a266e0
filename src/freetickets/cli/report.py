"""Write one HTML page that shows runs side by side.

freetickets report runs/edst runs/dense --output report.html
"""

from __future__ import annotations

import argparse


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of this command."""
    parser.add_argument("run_folders", nargs="+", metavar="RUN", help="the folders of runs")
    parser.add_argument("--output", "-o", default="report.html", metavar="FILE")


def run(parsed: argparse.Namespace) -> None:
    """Makes the page."""
