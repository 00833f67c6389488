"""The version of this package; `pyproject.toml` has the same (a test compares them)."""

VERSION = "0.1.0"
