"""Reading plans: pure state machines that decide what to ask next and what an answer proves.

No I/O and no clock: the time and fresh nonces are handed in.
"""
