"""The system calls that a sandboxed program may make, as a BPF program for the kernel's seccomp filter.

Always true: what is not listed is refused, so a call that a later kernel adds is refused too. No listed call makes a process, a
thread, a socket, a link or a device, changes a file's mode or owner, signals anybody, or loosens a limit. Numbers are those of
Linux's `syscall_64.tbl` (x86_64) and `asm-generic/unistd.h` (aarch64); another machine has no filter here.
"""

from __future__ import annotations

import platform
import struct
import sys

from counterpoint.lab.team.sandbox.watch import PATHS, REFUSED

# name: (x86_64, aarch64); None where the machine has no such call.
_CALLS: dict[str, tuple[int | None, int | None]] = {
    # Open files and the own folder; which paths may be opened is Landlock's business.
    "read": (0, 63), "write": (1, 64), "close": (3, 57), "lseek": (8, 62), "pread64": (17, 67), "pwrite64": (18, 68),
    "readv": (19, 65), "writev": (20, 66), "preadv": (295, 69), "pwritev": (296, 70), "sendfile": (40, 71),
    "copy_file_range": (326, 285), "dup": (32, 23), "dup2": (33, None), "dup3": (292, 24), "pipe2": (293, 59),
    "close_range": (436, 436), "flock": (73, 32), "fsync": (74, 82), "fdatasync": (75, 83), "truncate": (76, 45),
    "ftruncate": (77, 46), "fallocate": (285, 47), "fadvise64": (221, 223), "open": (2, None), "openat": (257, 56),
    "stat": (4, None), "fstat": (5, 80), "lstat": (6, None), "newfstatat": (262, 79), "statx": (332, 291), "statfs": (137, 43),
    "fstatfs": (138, 44), "access": (21, None), "faccessat": (269, 48), "faccessat2": (439, 439), "readlink": (89, None),
    "readlinkat": (267, 78), "getdents64": (217, 61), "getcwd": (79, 17), "chdir": (80, 49), "fchdir": (81, 50),
    "mkdir": (83, None), "mkdirat": (258, 34), "rmdir": (84, None), "unlink": (87, None), "unlinkat": (263, 35),
    "rename": (82, None), "renameat": (264, 38), "renameat2": (316, 276), "umask": (95, 166),
    # Memory; how much is RLIMIT_AS's business.
    "mmap": (9, 222), "mprotect": (10, 226), "munmap": (11, 215), "brk": (12, 214), "mremap": (25, 216), "msync": (26, 227),
    "madvise": (28, 233),
    # Time, waiting, and signals to oneself.
    "poll": (7, None), "ppoll": (271, 73), "select": (23, None), "pselect6": (270, 72), "nanosleep": (35, 101),
    "clock_nanosleep": (230, 115), "clock_gettime": (228, 113), "clock_getres": (229, 114), "gettimeofday": (96, 169),
    "time": (201, None), "times": (100, 153), "alarm": (37, None), "getitimer": (36, 102), "setitimer": (38, 103),
    "rt_sigaction": (13, 134), "rt_sigprocmask": (14, 135), "rt_sigreturn": (15, 139), "sigaltstack": (131, 132),
    "restart_syscall": (219, 128), "sched_yield": (24, 124), "sched_getaffinity": (204, 123), "futex": (202, 98),
    "set_robust_list": (273, 99), "rseq": (334, 293), "set_tid_address": (218, 96),
    # Who am I, where am I.
    "getpid": (39, 172), "getppid": (110, 173), "gettid": (186, 178), "getuid": (102, 174), "geteuid": (107, 175),
    "getgid": (104, 176), "getegid": (108, 177), "getgroups": (115, 158), "getresuid": (118, 148), "getresgid": (120, 150),
    "getpgrp": (111, None), "uname": (63, 160), "sysinfo": (99, 179), "getrusage": (98, 165), "getrandom": (318, 278),
    "exit": (60, 93), "exit_group": (231, 94),
}  # fmt: skip
# Calls of which only some commands are let through, and the answer to the others. `fcntl` could otherwise name a process that the
# kernel signals (F_SETOWN), and `ioctl` reaches devices; isatty and "do not inherit" are all that Python asks of it.
_FCNTL = ((72, 25), (0, 1, 2, 3, 4, 5, 6, 7, 1030), 1)
_IOCTL = ((16, 29), (0x5401, 0x5413, 0x5450, 0x5451), 25)

_MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_ALLOW, _KILL, _ERRNO, _ASK = 0x7FFF0000, 0x80000000, 0x00050000, 0x7FC00000
_EPERM, _ENOSYS = 1, 38
_NUMBER_AT, _MACHINE_AT, _FIRST_ARGUMENT_AT, _SECOND_ARGUMENT_AT = 0, 4, 16, 24
_SENDMSG, REPORT_FD = (46, 211), 3
"""The one message of a child, on the one descriptor that can carry it: it is closed before the program begins."""
_X32 = 0x40000000
_NEW_CALLS = 424
"""From here on both machines number alike; a C library that meets ENOSYS falls back to the older call."""


def _step(code: int, value: int, if_so: int = 0, if_not: int = 0) -> bytes:
    return struct.pack("<HBBI", code, if_so, if_not, value)


def _by_command(number: int, commands: tuple[int, ...], answer: int) -> list[bytes]:
    """Let a call through by its second argument; another call jumps over all of this."""
    inner = [_step(_LOAD, _SECOND_ARGUMENT_AT)]
    inner += [_step(_EQUAL, command, len(commands) - k) for k, command in enumerate(commands)]
    inner += [_step(_RETURN, _ERRNO | answer), _step(_RETURN, _ALLOW)]
    return [_step(_EQUAL, number, 0, len(inner)), *inner]


def _asking(column: int) -> list[bytes]:
    """Stop at every call that `watch` judges, and let the one message through."""
    steps = [_step(_EQUAL, _SENDMSG[column], 0, 4), _step(_LOAD, _FIRST_ARGUMENT_AT), _step(_EQUAL, REPORT_FD, 0, 1)]
    steps += [_step(_RETURN, _ALLOW), _step(_RETURN, _ERRNO | _EPERM)]
    pairs = [*(numbers for numbers, _, _ in PATHS.values()), *(numbers for numbers, _ in REFUSED.values())]
    for number in sorted(number for pair in pairs if (number := pair[column]) is not None):
        steps += [_step(_EQUAL, number, 0, 1), _step(_RETURN, _ASK)]
    return steps


def filter_program(machine: str | None = None, *, asks: bool = False) -> bytes | None:
    """The filter for a machine (this one unless named), as an array of `struct sock_filter`; None where there is none.

    With `asks`, what names a path and what is worth a report is put to the parent instead of being decided here."""
    if machine is None:
        machine = platform.machine() if sys.platform == "linux" else ""
    if machine not in _MACHINES or struct.calcsize("P") != 8:
        return None
    column, mark = _MACHINES[machine]
    numbers = sorted(number for pair in _CALLS.values() if (number := pair[column]) is not None)
    steps = [
        _step(_LOAD, _MACHINE_AT),
        _step(_EQUAL, mark, 1),
        _step(_RETURN, _KILL),
        _step(_LOAD, _NUMBER_AT),
    ]
    if machine == "x86_64":
        steps += [_step(_AT_LEAST, _X32, 0, 1), _step(_RETURN, _KILL)]
    steps += _asking(column) if asks else []
    for pair, commands, answer in (_FCNTL, _IOCTL):
        steps += _by_command(pair[column], commands, answer)
    steps += [_step(_EQUAL, number, len(numbers) + 2 - k) for k, number in enumerate(numbers)]
    steps += [_step(_AT_LEAST, _NEW_CALLS, 1), _step(_RETURN, _ERRNO | _EPERM), _step(_RETURN, _ERRNO | _ENOSYS)]
    steps.append(_step(_RETURN, _ALLOW))
    return b"".join(steps)
