"""``python -m fedpace`` is the command ``fedpace``."""

from fedpace.cli import main

main()
