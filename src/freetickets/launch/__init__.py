"""Work side by side: the runs of a plan, or the cells of an experiment, as processes of their own.

What is to be done is a list of `Assignment`s; a launcher is a function that does them and tells
`News`. They share only the disk: each has a checkpointed folder, so what is lost starts again.
"""

from .assignment import Assignment as Assignment
from .assignment import Launcher as Launcher
from .assignment import News as News
