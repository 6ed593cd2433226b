"""Evaluation: questions, arms, grading, results and the report on them.

A module is imported by its name; nothing is loaded here.
"""
