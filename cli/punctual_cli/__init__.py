"""The command line: `punctual`."""
