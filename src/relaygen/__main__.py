"""``python -m relaygen``."""

from relaygen.cli import main

if __name__ == "__main__":
    main(prog_name="relaygen")
