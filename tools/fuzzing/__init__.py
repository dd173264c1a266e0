"""What `tools/fuzz.py` and the tests in `tests/fuzz` have in common."""
