"""The state of a deployment: what is claimed, what is applied, what waits and what unblocks it.

`assemble` and everything it uses is pure; facts come from `ops.facts`.
"""

from ops.status.assemble import assemble
from ops.status.model import Status

__all__ = ["Status", "assemble"]
