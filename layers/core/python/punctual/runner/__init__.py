"""Carries out one run outside of the scheduler: in a script function or in a container.

It needs only the standard library, because it travels as one zip without packages.
"""
