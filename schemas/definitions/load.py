"""Loads a folder of definitions: `sources/*.yaml` and `mappings/*.yaml`, all problems in one go."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from schemas.definitions import known_keys
from schemas.definitions.fields import Fields
from schemas.definitions.mapping import ChildSpec, MappingSpec
from schemas.definitions.problems import DefinitionError, Problem
from schemas.definitions.read_mapping import read_mapping
from schemas.definitions.read_source import check_version, read_source
from schemas.definitions.reader import Place, Reader, Refused
from schemas.definitions.source import SourceSpec, StreamSpec
from schemas.definitions.tree import Entry, MapNode, ScalarNode, read_tree

_FOLDERS = ("sources", "mappings")
_TOP = ScalarNode(None, "", 1, 1)


@dataclass(frozen=True, slots=True)
class Definitions:
    """What was read; only what has no problem is in `sources` and `mappings`."""

    sources: Mapping[str, SourceSpec]
    mappings: Mapping[str, MappingSpec]
    problems: tuple[Problem, ...] = ()
    folder: Path = field(default_factory=Path)  # where relative files of references start
    reads: Mapping[str, str] = field(default_factory=dict)  # mapping file → source in its `from`

    def errors_about(self, source: str) -> tuple[Problem, ...]:
        """Errors of the source's file and of mapping files that read it, or may: a file that does
        not say what it reads is not taken for another source's."""
        spec = self.sources.get(source)
        mine = {spec.file} if spec else set()
        return tuple(
            problem
            for problem in self.errors
            if problem.file in mine
            or (
                problem.file.startswith("mappings/")
                and self.reads.get(problem.file, source) == source
            )
        )

    @property
    def errors(self) -> tuple[Problem, ...]:
        """The problems that are not just warnings."""
        return tuple(problem for problem in self.problems if problem.severity == "error")

    def check(self) -> "Definitions":
        """Itself, or DefinitionError if anything is wrong."""
        if self.errors:
            raise DefinitionError(self.errors)
        return self

    def streams_of(self, source: str) -> tuple[StreamSpec, ...]:
        """The streams of a source, in the order of the file."""
        return tuple(self.sources[source].streams.values())

    def mappings_for(self, source: str, stream: str) -> tuple[MappingSpec, ...]:
        """The mappings that read a stream."""
        return tuple(
            spec
            for spec in self.mappings.values()
            if (spec.source, spec.stream) == (source, stream)
        )


def load_folder(folder: Path) -> Definitions:
    """All definitions below a folder. Problems name files relative to it."""
    files = [
        path
        for name in _FOLDERS
        for path in sorted((folder / name).rglob("*"))
        if path.suffix in (".yaml", ".yml") and path.is_file() and not path.name.startswith(".")
    ]
    if not files:
        advice = "Put sources into `sources/*.yaml` and mappings into `mappings/*.yaml` below it."
        problem = Problem(str(folder), 1, 1, "there are no definitions here", "", advice)
        return Definitions({}, {}, (problem,), folder)
    return _load(folder, files)


def load_file(path: Path) -> Definitions:
    """One file; for a mapping also the sources of its folder, so that it can be checked.

    The folder is the one that holds `sources/` or `mappings/`, else the file's own.
    """
    folder = path.parent.parent if path.parent.name in _FOLDERS else path.parent
    others = [one for one in sorted((folder / "sources").glob("*.y*ml")) if one != path]
    loaded = _load(folder, [*others, path])
    shown = _shown(folder, path)
    return Definitions(
        {name: spec for name, spec in loaded.sources.items() if spec.file == shown},
        {name: spec for name, spec in loaded.mappings.items() if spec.file == shown},
        tuple(problem for problem in loaded.problems if problem.file == shown),
        folder,
    )


def _shown(folder: Path, path: Path) -> str:
    return path.relative_to(folder).as_posix() if path.is_relative_to(folder) else str(path)


@dataclass(slots=True)
class _Loader:
    """What was found so far. A source that is None stands in a file with problems."""

    folder: Path
    sources: dict[str, SourceSpec | None] = field(default_factory=dict)
    mappings: dict[str, MappingSpec] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)  # mapping or table → file and line
    files: list[tuple[Reader, MapNode]] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)

    def open(self, path: Path) -> None:
        shown = _shown(self.folder, path)
        try:
            text = path.read_bytes().decode("utf-8-sig")
        except OSError as error:
            message = f"this file cannot be read: {error.strerror}"
            self.problems.append(Problem(shown, 1, 1, message, "", ""))
            return
        except UnicodeDecodeError:
            self.problems.append(Problem(shown, 1, 1, "this file is not UTF-8", "", ""))
            return
        reader = Reader(shown, text)
        tree = read_tree(text)
        for fault in tree.faults:
            reader.note(fault, fault.message, fault.advice)
        root = tree.root
        if isinstance(root, MapNode) and ("source" in root.entries) != ("mapping" in root.entries):
            self.files.append((reader, root))
            return
        if not reader.failed:
            advice = "Write `source: NAME` or `mapping: NAME` below `gapless: 1`."
            reader.note(_TOP, "this file is neither a source nor a mapping", advice)
        self.problems.extend(reader.problems)

    def read_sources(self) -> None:
        for reader, root in self.files:
            if "source" not in root.entries:
                continue
            named = root.get("source")
            name = named.raw if isinstance(named, ScalarNode) else ""
            if name in self.sources:
                reader.note(named or root, f"there is another source {name}", "Rename one of them.")
                continue
            self.sources[name] = None
            self.sources[name] = read_source(reader, root, self.folder)

    def read_mappings(self) -> None:
        for reader, root in self.files:
            if "mapping" in root.entries:
                fields = Fields(reader, root, "a mapping", known_keys.MAPPING)
                check_version(fields)
                name = fields.need("mapping", reader.name, "")
                self.add_mapping(reader, fields, name, root.entries["mapping"])
                continue
            node = root.get("mappings")
            if node is not None:
                listed = reader.attempt(lambda r=reader, n=node: r.map(n, "mappings"), None)  # type: ignore[misc]
                for entry in () if listed is None else listed.entries.values():
                    self.add_inline(reader, entry)

    def add_inline(self, reader: Reader, entry: Entry) -> None:
        try:
            name = reader.name(ScalarNode(entry.key, entry.key, entry.line, entry.column))
            node = reader.map(entry.value, f"mapping {name}")
        except Refused:
            return
        fields = Fields(reader, node, f"mapping {name}", known_keys.INLINE_MAPPING)
        self.add_mapping(reader, fields, name, entry)

    def add_mapping(self, reader: Reader, fields: Fields, name: str, at: Place) -> None:
        spec = read_mapping(reader, fields, name, self.sources)
        self.claim(reader, f"mapping {name}", at)
        table = fields.node.get("table")
        if isinstance(table, ScalarNode):
            self.claim(reader, f"mapping to the table {table.raw}", table)
        if spec is not None:
            self.mappings[name] = spec
            for child in spec.children.values():
                self.claim(reader, f"mapping to the table {child.table}", _table_of(fields, child))

    def claim(self, reader: Reader, what: str, at: Place) -> None:
        """Mappings and tables are named once over all files."""
        if what in self.names:
            reader.note(at, f"there is another {what}", f"It stands at {self.names[what]}.")
        else:
            self.names[what] = f"{reader.file}:{at.line}"


def _table_of(fields: Fields, child: ChildSpec) -> Place:
    """Where the table of a child is named."""
    node = fields.node.get("children")
    return node.entries[child.name] if isinstance(node, MapNode) else fields.node


def _load(folder: Path, files: Iterable[Path]) -> Definitions:
    loader = _Loader(folder)
    for path in files:
        loader.open(path)
    loader.read_sources()
    loader.read_mappings()
    failed = {reader.file for reader, _ in loader.files if reader.failed}
    problems = [*loader.problems, *(one for reader, _ in loader.files for one in reader.problems)]
    return Definitions(
        {
            name: spec
            for name, spec in loader.sources.items()
            if spec is not None and spec.file not in failed
        },
        {name: spec for name, spec in loader.mappings.items() if spec.file not in failed},
        tuple(sorted(problems, key=lambda one: (one.file, one.line, one.column))),
        folder,
        {
            reader.file: named.raw.partition("/")[0]
            for reader, root in loader.files
            if isinstance(named := root.get("from"), ScalarNode)
        },
    )
