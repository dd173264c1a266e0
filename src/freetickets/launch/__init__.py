"""Work side by side: the runs of a plan, or the cells of an experiment, as processes of their own.

What is to be done is a list of `Piece`s; a launcher is a function that does them and tells `News`.
Pieces share nothing but the disk: each has a checkpointed folder, so one that is lost starts again.
"""

from .piece import Launcher as Launcher
from .piece import News as News
from .piece import Piece as Piece
