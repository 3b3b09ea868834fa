"""`python -m refusal` is the `refusal` command."""

from refusal.cli.main import main

main()
