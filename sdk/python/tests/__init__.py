"""The tests of orbit_sdk: `scripts/test-python` runs them."""

import logging

# What workers say while the tests trouble them is of interest only to the tests that look at it.
logging.getLogger("orbit").addHandler(logging.NullHandler())
