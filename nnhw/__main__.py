"""`python -m nnhw`: the command line."""

from nnhw.cli import main

if __name__ == "__main__":
    main()
