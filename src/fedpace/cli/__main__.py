"""``python -m fedpace.cli``."""

from fedpace.cli import main

main()
