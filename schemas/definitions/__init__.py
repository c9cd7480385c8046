"""Definitions of sources and mappings: YAML in, frozen and fully merged specifications out.

Nothing here asks a server or reads a clock; what a definition means stands in `source` and `mapping`.
"""

from schemas.definitions.load import Definitions, load_file, load_folder
from schemas.definitions.problems import DefinitionError, Problem

__all__ = ["DefinitionError", "Definitions", "Problem", "load_file", "load_folder"]
