"""`gapless explain`: every observation that touched a row, and what became of each.

Found by the row's key in the raw records of its partition id, so superseded and refused ones are
there too. Reads the log again; nothing is kept.
"""

from ops.explain.model import Explanation, Sighting
from ops.explain.run import explain

__all__ = ["Explanation", "Sighting", "explain"]
