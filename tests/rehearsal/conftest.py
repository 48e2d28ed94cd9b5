"""The emulator's virtualenv runs launch.py, so pytest must not import it."""

collect_ignore = ["launch.py"]
