"""`python -m counterpoint`: the command line."""

from counterpoint.app.cli import main

if __name__ == "__main__":
    main()
