"""`python -m dolb` is the `dolb` command."""

from dolb.cli import app

app(prog_name="dolb")
