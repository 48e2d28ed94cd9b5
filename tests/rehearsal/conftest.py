"""What the emulator's own virtualenv runs is not for this one to import."""

collect_ignore = ["launch.py"]
