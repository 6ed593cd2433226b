"""Grading: what result an answer states, and whether two answers say the same.

A module is imported by its name; nothing is loaded here.
"""
