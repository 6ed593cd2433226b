"""Pure text logic: spans, switch cues, sentence ends, stages, stop strings, repetition.

Everything here reads text character by character, costs the same per character however long the
text grows, and does no I/O.
"""
