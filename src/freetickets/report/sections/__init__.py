"""The sections of a comparison, one subject a file.

Every function takes a `Comparison` and returns the sections that its runs have data for, maybe
none.
"""
