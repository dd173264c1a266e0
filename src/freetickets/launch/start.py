"""Runs a module with another process's `sys.path`: `python start.py MODULE COUNT PATHS ARGUMENTS`.

`python -m` puts the current folder first on the path, and a `yaml.py` that lies there would run. So
would a `linecache.py` by `python -c`, which from 3.13 on imports it before its first statement. A
script has its own folder there instead, in every version of Python; this one drops even that.
"""

import sys

if __name__ == "__main__":
    module, count, *rest = sys.argv[1:]
    sys.path[:] = rest[: int(count)]
    sys.argv[1:] = rest[int(count) :]

    import runpy

    runpy.run_module(module, run_name="__main__", alter_sys=True)
