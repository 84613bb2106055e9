"""The command line: main.py, options.py, and one file per verb."""

__all__: list[str] = []
