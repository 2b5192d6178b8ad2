"""Captures as one file: packed for sending, unpacked for reading into a folder that goes away again."""

from __future__ import annotations

import shutil
import tempfile
import weakref
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING

from pdctl.errors import CaptureError
from pdctl.reach.capture_index import LARGEST_INDEX

if TYPE_CHECKING:
    import tarfile

MEGABYTE = 1024 * 1024
MOST_MEMBERS = 10_000_000  # a day at 1 Hz of 115 pages
LARGEST_MEMBER = 1024 * MEGABYTE  # of the index: LARGEST_INDEX
MOST_BYTES = 64 * 1024 * MEGABYTE
LARGEST_HEADER = MEGABYTE
LONGEST_NAME = 1024  # bytes
DEEPEST = 3  # folders above the capture in a bundle
STEP = 256 * 1024
ZSTD_WINDOW = 128 * MEGABYTE
SUFFIXES = (".tar.gz", ".tgz", ".tar.zst")
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"


class Unpacked:
    """A bundle unpacked into a folder of our own, which goes when ``remove`` is called, when this value is forgotten,
    or with the process. ``root`` is the capture in it; ``notes`` what could not be unpacked, one line each."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="pdctl-capture-"))
        self.root = self.folder
        self.notes: tuple[str, ...] = ()
        self.remove = weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)


def pack(directory: Path, bundle: Path) -> None:
    """Writes the capture in ``directory`` to ``bundle`` (.tar.gz, .tgz or .tar.zst), whole or not at all. Raises
    CaptureError."""
    if not bundle.name.endswith(SUFFIXES):
        raise CaptureError(f"{bundle}: a bundle is named {', '.join(SUFFIXES)}")
    part = bundle.with_name(bundle.name + ".part")
    try:
        _write(directory, part, zstd=bundle.name.endswith(".zst"), top=stem_of(bundle))
        part.replace(bundle)
    except OSError as error:
        raise CaptureError(f"{bundle}: cannot be written: {error.strerror or error}") from None
    finally:
        part.unlink(missing_ok=True)


def stem_of(bundle: Path) -> str:
    """The bundle's name without its suffix."""
    return next((bundle.name.removesuffix(s) for s in SUFFIXES if bundle.name.endswith(s)), bundle.name)


def unpacked(bundle: Path) -> Unpacked:
    """The bundle's capture, unpacked. Raises CaptureError for what is no bundle or no capture."""
    made = Unpacked()
    try:
        taken = _Taking(made.folder)
        _read(bundle, taken)
        root = _root_of(made.folder)
        if root is None:
            raise CaptureError(f"{bundle} is no capture: it has no index.jsonl", "\n".join(taken.notes))
    except BaseException:
        made.remove()
        raise
    made.root, made.notes = root, taken.notes
    return made


# --- writing -----------------------------------------------------------------------------------------------------


def _write(directory: Path, part: Path, *, zstd: bool, top: str) -> None:
    import tarfile

    with ExitStack() as stack:
        out: IO[bytes] = stack.enter_context(part.open("xb"))
        if zstd:
            import zstandard

            out = stack.enter_context(zstandard.ZstdCompressor(level=10).stream_writer(out))
        mode = "w|" if zstd else "w|gz"
        tar = stack.enter_context(tarfile.open(fileobj=out, mode=mode))  # type: ignore[call-overload]
        for path in _files(directory):
            tar.add(path, f"{top}/{path.relative_to(directory).as_posix()}", recursive=False)


def _files(directory: Path) -> Iterator[Path]:
    """What reading needs first comes first; links and the like are no part of a capture."""
    first, last = ("cluster.toml", "index.jsonl"), ("manifest.json",)
    paths = sorted(p for p in directory.rglob("*") if p.is_file() and not p.is_symlink())
    named = {p.relative_to(directory).as_posix(): p for p in paths}
    yield from (named[name] for name in first if name in named)
    yield from (path for name, path in named.items() if name not in (*first, *last))
    yield from (named[name] for name in last if name in named)


# --- reading -----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Taking:
    """Where members go, and what became of them."""

    folder: Path
    members: int = 0
    bytes: int = 0
    outside: int = 0
    odd: int = 0
    large: int = 0
    broken: str | None = None
    made: PurePosixPath | None = None  # the folder of the last member: mostly that of the next as well

    @property
    def notes(self) -> tuple[str, ...]:
        said = [f"the bundle is cut short or damaged ({self.broken}): read as far as it goes"] if self.broken else []
        said += [f"{self.outside} members with paths that lead out of the bundle: left out"] if self.outside else []
        said += [f"{self.odd} members that are no plain files: left out"] if self.odd else []
        said += [f"{self.large} members over {LARGEST_MEMBER // MEGABYTE} MB: left out"] if self.large else []
        return tuple(said)


def _read(bundle: Path, taken: _Taking) -> None:
    import tarfile

    try:
        with ExitStack() as stack:
            source = _decompressed(stack.enter_context(bundle.open("rb")), stack)
            tar = stack.enter_context(tarfile.open(fileobj=source, mode="r|", tarinfo=_careful()))
            while (member := tar.next()) is not None:
                tar.members.clear()  # type: ignore[attr-defined]  # it would keep each, a kilobyte a member
                _take(tar, member, taken)
    except CaptureError as error:
        raise CaptureError(f"{bundle}: {error.message}", error.hint) from None
    except (tarfile.TarError, EOFError, zlib.error, OSError, ValueError) as error:
        _judge_damage(bundle, error, taken)
    except Exception as error:
        if type(error).__module__.partition(".")[0] != "zstandard":
            raise
        _judge_damage(bundle, error, taken)


def _judge_damage(bundle: Path, error: Exception, taken: _Taking) -> None:
    if not taken.members:
        words = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise CaptureError(
            f"{bundle} is no capture: {words}", "A capture is a directory, or a .tar.gz or .tar.zst of one."
        ) from None
    taken.broken = type(error).__name__


def _decompressed(file: IO[bytes], stack: ExitStack) -> IO[bytes]:
    """By what the file begins with, not by its name."""
    magic = file.read(4)
    file.seek(0)
    if magic.startswith(_GZIP):
        import gzip

        plain: IO[bytes] = gzip.GzipFile(fileobj=file, mode="rb")  # type: ignore[assignment]
        return stack.enter_context(plain)
    if magic == _ZSTD:
        import zstandard

        reader = zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW).stream_reader(file, read_across_frames=True)
        return stack.enter_context(reader)
    return file


def _careful() -> type[tarfile.TarInfo]:
    """Members whose extended headers are bounded: tarfile reads those into memory whole."""
    import tarfile

    class Careful(tarfile.TarInfo):
        def _proc_member(self, archive: tarfile.TarFile) -> tarfile.TarInfo:
            if self.size > LARGEST_HEADER and self.type not in (tarfile.REGTYPE, tarfile.AREGTYPE):
                raise CaptureError(f"holds a header of {self.size} bytes")
            return super()._proc_member(archive)  # type: ignore[misc,no-any-return]

    return Careful


def _take(tar: tarfile.TarFile, member: tarfile.TarInfo, taken: _Taking) -> None:
    taken.members += 1
    if taken.members > MOST_MEMBERS:
        raise CaptureError(f"holds more than {MOST_MEMBERS} members")
    if member.isdir():
        return
    path = _place(member.name)
    if path is None:
        taken.outside += 1
    elif not member.isfile() or len(member.name.encode("utf-8", "replace")) > LONGEST_NAME:
        taken.odd += 1
    elif member.size > (LARGEST_INDEX if path.name == "index.jsonl" else LARGEST_MEMBER):
        taken.large += 1
    else:
        taken.bytes += member.size
        if taken.bytes > MOST_BYTES:
            raise CaptureError(f"unpacks to more than {MOST_BYTES // MEGABYTE} MB")
        _copy(tar, member, taken, path)


def _place(name: str) -> PurePosixPath | None:
    """The member's path inside the folder; None for one that leads out of it."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\0" in name or not path.parts:
        return None
    return path


def _copy(tar: tarfile.TarFile, member: tarfile.TarInfo, taken: _Taking, path: PurePosixPath) -> None:
    source = tar.extractfile(member)
    if source is None:
        taken.odd += 1
        return
    try:
        if path.parent != taken.made:
            (taken.folder / path.parent).mkdir(parents=True, exist_ok=True)
            taken.made = path.parent
        target = (taken.folder / path).open("wb", buffering=0)
    except OSError:  # a folder where a file was, a name no file system takes
        taken.odd += 1
        return
    with source, target:
        while data := source.read(STEP):
            _put(target, data)


def _put(target: IO[bytes], data: bytes) -> None:
    try:
        rest = memoryview(data)
        while rest:
            rest = rest[target.write(rest) :]
    except OSError as error:
        hint = "TMPDIR names the folder it is unpacked in."
        raise CaptureError(f"cannot be unpacked: {error.strerror or error}", hint) from None


def _root_of(folder: Path) -> Path | None:
    """The folder nearest the top that has an index."""
    level = [folder]
    for _ in range(DEEPEST + 1):
        found = next((place for place in sorted(level) if (place / "index.jsonl").is_file()), None)
        if found is not None:
            return found
        level = [child for place in level for child in place.iterdir() if child.is_dir()]
    return None
