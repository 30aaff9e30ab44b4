"""`python -m symjax`: the command line, where its program is not on the path."""

from symjax.cli import main


if __name__ == "__main__":
    main()
