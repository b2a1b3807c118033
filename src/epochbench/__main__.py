"""`python -m epochbench` is the command `epochbench`."""

from epochbench.cli import app

if __name__ == "__main__":
    app(prog_name="epochbench")
