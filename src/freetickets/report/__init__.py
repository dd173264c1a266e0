"""Reports: finished runs side by side, as tables and as one self-contained HTML page."""
