"""Punctual runs jobs at their time."""
