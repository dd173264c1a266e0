"""The figures. Every function returns panels: inline SVGs that the page lays out.

They take arrays by the name of the run, in the order of the page. Where a figure shows some runs
only, `runs=` names all of the page, and each keeps its colour. Without data there is no panel.
"""
