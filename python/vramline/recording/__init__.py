"""Writes what this process does to a recording."""
