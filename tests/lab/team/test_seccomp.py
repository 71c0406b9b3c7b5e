"""The seccomp filter, decided step by step as the kernel would, for both machines."""

from __future__ import annotations

import struct

import pytest

from counterpoint.lab.team.sandbox.seccomp import _CALLS, filter_program

ALLOW, KILL, ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
MARKS = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
BY_COMMAND = {"x86_64": (72, 16), "aarch64": (25, 29)}
FORBIDDEN = {
    # socket, connect, sendto, socketpair, clone, execve, execveat, kill, tgkill, ptrace, mount, unshare, setns, chroot, prctl, prlimit64,
    # keyctl, bpf, perf_event_open, linkat, symlinkat, mknodat, fchmodat, fchownat, utimensat, setsid, setpgid, memfd_create, shmget,
    # process_vm_readv, seccomp, capset, personality, setuid, timer_create, sched_setaffinity, inotify_init1, userfaultfd
    "x86_64": [41, 42, 44, 53, 56, 59, 322, 62, 234, 101, 165, 272, 308, 161, 157, 302, 250, 321, 298, 265, 266, 259, 268, 260, 280, 112,
               109, 319, 29, 310, 317, 126, 135, 105, 222, 203, 294, 323, 57, 58, 86, 88, 90, 92, 133, 160],
    "aarch64": [198, 203, 206, 199, 220, 221, 281, 129, 131, 117, 40, 97, 268, 51, 167, 261, 219, 280, 241, 37, 36, 33, 53, 54, 88, 157,
                154, 279, 194, 270, 277, 91, 92, 146, 107, 122, 26, 282],
}  # fmt: skip
# clone3, io_uring_setup, pidfd_send_signal, open_tree, pidfd_getfd, landlock_restrict_self, and one of tomorrow
NEW = [435, 425, 424, 428, 438, 446, 9999]


def decide(program: bytes, mark: int, number: int, second: int = 0) -> int:
    """What a filter returns for a system call: an interpreter for the few instructions that ours uses."""
    data = struct.pack("<IIQ6Q", number, mark, 0, 0, second, 0, 0, 0, 0)
    steps = list(struct.iter_unpack("<HBBI", program))
    at, held = 0, 0
    while True:
        code, if_so, if_not, value = steps[at]
        at += 1
        if code == 0x20:
            held = struct.unpack_from("<I", data, value)[0]
        elif code == 0x06:
            return value
        else:
            is_so = held == value if code == 0x15 else held >= value
            assert code in (0x15, 0x35)
            at += if_so if is_so else if_not


@pytest.mark.parametrize("machine", MARKS)
def test_what_is_listed_is_allowed_and_nothing_else(machine: str) -> None:
    program, mark = filter_program(machine), MARKS[machine]
    assert program is not None
    column = list(MARKS).index(machine)
    listed = {pair[column] for pair in _CALLS.values()} - {None}
    for number in set(range(600)) - set(BY_COMMAND[machine]):
        expected = ALLOW if number in listed else ERRNO | (38 if number >= 424 else 1)
        assert decide(program, mark, number) == expected, number


@pytest.mark.parametrize("machine", MARKS)
def test_what_must_never_pass_does_not(machine: str) -> None:
    program, mark = filter_program(machine), MARKS[machine]
    assert program is not None
    assert {decide(program, mark, number) for number in FORBIDDEN[machine]} == {ERRNO | 1}
    assert {decide(program, mark, number) for number in NEW} == {ERRNO | 38}


@pytest.mark.parametrize(("machine", "fcntl", "ioctl"), [("x86_64", 72, 16), ("aarch64", 25, 29)])
def test_only_harmless_commands_pass(machine: str, fcntl: int, ioctl: int) -> None:
    program, mark = filter_program(machine), MARKS[machine]
    assert program is not None
    allowed = {command for command in range(2000) if decide(program, mark, fcntl, command) == ALLOW}
    assert allowed == {0, 1, 2, 3, 4, 5, 6, 7, 1030}, "duplicate, flags and locks; not F_SETOWN, F_SETSIG, F_NOTIFY"
    assert decide(program, mark, ioctl, 0x5401) == ALLOW
    assert decide(program, mark, ioctl, 0x5412) == ERRNO | 25, "TIOCSTI types into a terminal"


def test_another_machine_or_another_numbering_is_ended() -> None:
    program = filter_program("x86_64")
    assert program is not None
    assert decide(program, MARKS["aarch64"], 63) == KILL
    assert decide(program, 0x40000003, 4) == KILL, "32-bit calls"
    assert decide(program, MARKS["x86_64"], 0x40000000) == KILL, "x32 calls"
    assert filter_program("riscv64") is None
