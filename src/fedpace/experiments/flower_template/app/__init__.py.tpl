"""fedpace's preset $preset as a Flower app."""
