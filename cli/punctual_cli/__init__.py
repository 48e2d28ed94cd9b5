"""The command line `punctual`."""
