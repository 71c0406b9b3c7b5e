"""The child's side of the sandbox: give up every right that is not needed, then run the program.

Always true: the program's first line runs after every layer that the parent asked for is on; a layer that the kernel refuses ends
the process with `NOT_SAFE` instead.

The audit hook is the innermost and weakest layer (a clever program can get round it); it is there to say in words what was
refused. The walls are Landlock, seccomp and the limits. Nothing is told to the parent after the program has begun: what the hook
refuses it also tries, so that the kernel tells (`watch`), whom no program can silence or fake. The parent sends this file
compiled, under the name `NAME`, so that a call costs neither parsing nor a readable path.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # `typing` is slow to import, and this file is started anew for every call
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from typing import Any

NOT_SAFE = 113
NAME = "<sandbox>"
_FRAMES = 30
# What a program may not do at all, by the name of CPython's audit event (or its beginning, up to a dot).
_REFUSED = {
    "socket": "network", "subprocess": "process", "os.system": "process", "os.exec": "process", "os.fork": "process",
    "os.forkpty": "process", "os.posix_spawn": "process", "os.spawn": "process", "pty": "process", "os.kill": "signal",
    "os.killpg": "signal", "signal.pthread_kill": "signal", "os.chmod": "mode", "os.chown": "mode", "os.lchmod": "mode",
    "os.setxattr": "mode", "os.removexattr": "mode", "os.link": "link", "os.symlink": "link", "resource": "limits",
    "ctypes": "ctypes", "_thread.start_new_thread": "thread", "sqlite3.enable_load_extension": "extension",
    "sqlite3.load_extension": "extension", "syslog": "syslog", "fcntl.ioctl": "device", "_posixsubprocess": "process",
}  # fmt: skip
_HARMLESS = {"socket.gethostname"}
# What is right or wrong by its path.
_FOLDERS = {"os.listdir", "os.scandir"}
_BY_PATH = _FOLDERS | {"open", "os.mkdir", "os.remove", "os.rmdir", "os.truncate", "os.rename", "sqlite3.connect"}
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


def _limit(limits: dict[str, tuple[int, int]]) -> None:
    import resource

    for name, value in limits.items():
        resource.setrlimit(getattr(resource, name), value)


def _landlock(libc: Any, ctypes: Any, ruleset: bytes, rules: Sequence[tuple[str, int]]) -> None:
    """landlock_create_ruleset, one landlock_add_rule per path, landlock_restrict_self: 444 to 446 on every machine."""

    def done(answer: int, what: str) -> int:
        if answer < 0:
            raise OSError(ctypes.get_errno(), f"{what} failed")
        return answer

    done(libc.prctl(38, 1, 0, 0, 0), "no_new_privs")
    fd = done(libc.syscall(444, ctypes.create_string_buffer(ruleset, len(ruleset)), ctypes.c_size_t(len(ruleset)), 0), "landlock")
    for path, rights in rules:
        beneath = os.open(path, os.O_PATH | os.O_CLOEXEC)
        rule = rights.to_bytes(8, sys.byteorder) + beneath.to_bytes(4, sys.byteorder)
        done(libc.syscall(445, fd, 1, ctypes.create_string_buffer(rule, len(rule)), 0), "landlock rule")
        os.close(beneath)
    done(libc.syscall(446, fd, 0), "landlock")
    os.close(fd)


def _seccomp(libc: Any, ctypes: Any, program: bytes, asks: int) -> int:
    """The filter; where it asks the parent (`asks`: the number of the system call), the descriptor to listen at, else -1."""
    steps = ctypes.create_string_buffer(program, len(program))

    class Program(ctypes.Structure):
        _fields_ = [("length", ctypes.c_ushort), ("steps", ctypes.c_void_p)]

    wanted = Program(len(program) // 8, ctypes.addressof(steps))
    if libc.prctl(38, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "no_new_privs failed")
    if asks:
        listener: int = libc.syscall(asks, 1, 8, ctypes.byref(wanted))
        if listener < 0:
            raise OSError(ctypes.get_errno(), "seccomp failed")
        return listener
    if libc.prctl(22, 2, ctypes.byref(wanted), 0, 0):
        raise OSError(ctypes.get_errno(), "seccomp failed")
    return -1


def _bind(job: dict[str, Any]) -> int:
    """Put on the layers: die with the parent, limits, Landlock, no capabilities, seccomp; gives where the parent is to listen."""
    if not job["linux"]:
        _limit(job["limits"])
        return -1
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(1, 9, 0, 0, 0)
    if os.getppid() != job["parent"]:
        os._exit(NOT_SAFE)
    _limit(job["limits"])
    if job["ruleset"]:
        _landlock(libc, ctypes, job["ruleset"], job["rules"])
    header = (0x20080522).to_bytes(4, sys.byteorder) + bytes(4)
    if libc.capset(header, bytes(24)):
        raise OSError(ctypes.get_errno(), "capset failed")
    listener = _seccomp(libc, ctypes, job["seccomp"], job["asks"]) if job["seccomp"] else -1
    for name in [name for name in sys.modules if name.split(".")[0] in {"ctypes", "_ctypes", "resource"}]:
        del sys.modules[name]
    return listener


def _paths(event: str, args: tuple[Any, ...]) -> list[tuple[Any, bool]]:
    """The paths that an event is about, and whether it would write there."""
    if event == "open":
        return [(args[0], bool(args[2] & _WRITES))]
    if event == "os.rename":
        return [(args[0], True), (args[1], True)]
    if event == "sqlite3.connect":
        return [] if args[0] in ("", ":memory:", b"", b":memory:") else [(args[0], True)]
    return [("." if args[0] is None else args[0], event not in _FOLDERS)]


def _attempts(trap: str) -> dict[str, Callable[[str], object]]:
    """For each kind of attempt a call that makes it, so that the kernel sees it; the filter refuses every one. The functions are
    taken now: a program may put its own in their place."""
    opened, closed, fork, kill, chmod, symlink = os.open, os.close, os.fork, os.kill, os.chmod, os.symlink
    pid, thread = os.getpid(), sys.modules["_thread"].start_new_thread

    def network(_: str) -> object:
        import _socket

        return _socket.socket()

    def limits(_: str) -> None:
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    def file(path: str, flags: int = os.O_RDONLY) -> None:
        closed(opened(path, flags | os.O_NONBLOCK))

    return {
        "file": file, "honeypot": file, "write": lambda path: file(path, os.O_WRONLY), "ctypes": lambda _: file(trap),
        "network": network, "syslog": network, "limits": limits,
        "process": lambda _: fork(), "signal": lambda _: kill(pid, 0), "mode": lambda _: chmod(".", 0o700),
        "link": lambda _: symlink(".", ".link"), "thread": lambda _: thread(int, ()),
    }  # fmt: skip


def _refusing(attempts: dict[str, Callable[[str], object]], busy: list[bool]) -> Callable[..., None]:
    """What makes an attempt that the kernel sees, during which the hook is `busy`, and then refuses it in words."""

    def refuse(kind: str, what: object, attempt: str = "") -> None:
        if kind in attempts:
            busy[0] = True
            try:
                attempts[attempt or kind](str(what))
            except Exception:  # that is what was expected
                pass
            finally:
                busy[0] = False
        # A program is not told which of its files is a trap.
        of_file = kind in {"file", "honeypot"}
        raise PermissionError(1, f"not allowed in the sandbox: {'file' if of_file else kind}", *([str(what)] if of_file else []))

    return refuse


def _hook(folder: str, roots: tuple[str, ...], watched: Collection[str], trap: str) -> Callable[[str, tuple[Any, ...]], None]:
    """The audit hook: refuses in words; where the kernel tells (`trap` is not empty) it makes the attempt first."""
    attempts, busy = _attempts(trap) if trap else {}, [False]
    refuse = _refusing(attempts, busy)
    realpath, join, fspath, cwd = os.path.realpath, os.path.join, os.fspath, os.getcwd

    def is_library(path: str) -> bool:
        return path.startswith(roots) and "/site-packages" not in path and "/dist-packages" not in path

    def look(path: Any, writes: bool) -> None:
        if isinstance(path, int):
            return
        path = os.fsdecode(fspath(path))
        if not writes and is_library(path) and ".." not in path:
            return
        real = realpath(join(cwd(), path))
        if real in watched or path in watched:
            refuse("honeypot", path)
        if real == folder or real.startswith(folder + "/") or real == os.devnull or (not writes and is_library(real)):
            return
        refuse("file", path, "write" if writes else "")

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if busy[0]:
            return
        if event in _BY_PATH:
            for path, writes in _paths(event, args):
                try:
                    look(path, writes)
                except PermissionError:
                    raise
                except Exception:  # the program has taken something away that this needs: then the kernel judges alone
                    if not attempts:
                        raise
        elif event == "import":
            if args[0] in {"ctypes", "_ctypes"}:
                refuse("ctypes", args[0])
        else:
            kind = _REFUSED.get(event) or _REFUSED.get(event.partition(".")[0])
            if kind and event not in _HARMLESS:
                refuse(kind, event)

    return hook


def _tell(error: BaseException, source: str) -> None:
    """Print the traceback from the program's first line on."""
    import linecache
    import traceback

    linecache.cache["<program>"] = (len(source), None, source.splitlines(True), "<program>")
    shown: Any = traceback.TracebackException.from_exception(error, limit=-_FRAMES, lookup_lines=False)
    todo = [shown]
    while todo:
        part = todo.pop()
        part.stack = traceback.StackSummary.from_list([frame for frame in part.stack if frame.filename != NAME])
        todo += [other for other in (part.__cause__, part.__context__, *(part.exceptions or ())) if other is not None]
    print("".join(shown.format()), end="", file=sys.stderr)


def _play(source: str) -> int:
    """Run the program as `__main__`; gives the exit code."""
    main = type(sys)("__main__")
    sys.modules["__main__"] = main
    try:
        exec(compile(source, "<program>", "exec", dont_inherit=True), main.__dict__)
        import atexit

        atexit._run_exitfuncs()
        return 0
    except SystemExit as error:
        if error.code is not None and not isinstance(error.code, int):
            print(error.code, file=sys.stderr)
        return (error.code & 0xFF) if isinstance(error.code, int) else int(error.code is not None)
    except BaseException as error:
        if isinstance(error, MemoryError):
            main.__dict__.clear()
        sys.stdout.flush()
        _tell(error, source)
        return 1


def launch(job: dict[str, Any]) -> None:
    """Bind, and run the job's program; never returns."""
    import builtins

    fd, source, folder = int(sys.argv[1]), job["source"], job["folder"]
    try:
        if fd != job["report"]:
            os.dup2(fd, job["report"])
            os.close(fd)
        import _socket

        parent = _socket.socket(fileno=job["report"])
        os.umask(0o077)
        os.chdir(folder)
        with open(os.devnull, "rb") as nothing:
            os.dup2(nothing.fileno(), 0)
        listener = _bind(job)
        # One message to the parent before the program's first line: all layers are on. After it there is no channel any more.
        parent.sendmsg([b"!"], [(1, 1, listener.to_bytes(4, sys.byteorder))] if listener >= 0 else [])
        parent.close()
        if listener >= 0:
            os.close(listener)
    except OSError as error:
        print(error, file=sys.stderr, flush=True)
        os._exit(NOT_SAFE)
    sys.argv[:] = [""]
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # what was printed before the end is kept
    sys.path.insert(0, folder)
    builtins.exit = builtins.quit = sys.exit  # type: ignore[assignment]  # `site` would set them
    sys.addaudithook(_hook(folder, tuple(job["roots"]), frozenset(job["watched"]), job["trap"]))
    job.clear()
    code = _play(source)
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    finally:  # whatever the program did to its streams
        os._exit(code)
