"""`python -m entrepot.cli`, for when the script is not on the path."""

from entrepot.cli import main

main(prog_name="entrepot")
