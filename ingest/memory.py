"""How the C library keeps memory: bodies of some hundred kilobytes come and go all the time.

By default each is handed back to the kernel and faulted in again, page by page, which costs as much
as reading it. No limit of how much is used stands here: that is the buffer's duty.
"""

from __future__ import annotations

import ctypes
import gc

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # malloc.h of glibc
_KEPT_BYTES = 16_777_216
"""Freed memory at the end of a heap that stays; a process has a few heaps."""
_OF_ITS_OWN_BYTES = 4_194_304
"""What is larger than this is rare, and goes back at once."""
_UNTOUCHED_OBJECTS = 10_000
"""Pages in flight are no garbage: they are looked through less often than Python would."""


def prepare() -> None:
    """For a process that reads pages as long as it lives; call it when everything is imported."""
    keep_freed()
    gc.collect()
    gc.freeze()
    gc.set_threshold(_UNTOUCHED_OBJECTS)


def keep_freed() -> bool:
    """From now on freed memory is used again; whether this C library can be told so."""
    try:
        tell = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):  # another C library than glibc
        return False
    tell.argtypes, tell.restype = [ctypes.c_int, ctypes.c_int], ctypes.c_int
    told = [tell(_M_MMAP_THRESHOLD, _OF_ITS_OWN_BYTES), tell(_M_TRIM_THRESHOLD, _KEPT_BYTES)]
    return all(told)
