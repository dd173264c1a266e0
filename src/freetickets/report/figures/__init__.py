"""The figures. Every function returns panels, inline SVGs; without data there is none.

They take arrays by the name of the run; `runs=` names all of the page: each keeps its colour.
"""
