"""The hook as a program of its own: `python -S .../counterpoint/guard/__main__.py`, or `python -m counterpoint.guard`.

It needs nothing but the standard library and this package, so `-S` spares looking for installed packages, which costs more than
the hook itself. What does need them (a price that is looked up for the first time) asks `with_packages` for them.
"""

import os
import sys

if __name__ == "__main__":
    here = os.path.dirname(os.path.abspath(__file__))
    if sys.path and os.path.abspath(sys.path[0]) == here:  # run by its path: the package is what is looked for, not its modules
        sys.path[0] = os.path.dirname(os.path.dirname(here))
    from counterpoint.guard.hook import main

    main()
