"""seccomp: system calls that checked code never needs are refused by the kernel.

No sockets, no new processes or programs (threads are allowed), no tracing, no mounts, no keys, no
io_uring. A refused call fails with EPERM, so Python raises PermissionError and the student's code
ends in the usual way. The filter first checks the architecture, because the same number is another
call on another one. The zygote reads this file, so it imports nothing of clearhead but kernel.py.
"""

import ctypes
import errno
import platform
import struct

from clearhead.exercises.sandbox import kernel

# name, number on x86_64, number on aarch64 (None: this architecture does not have it)
REFUSED = """
socket 41 198 · socketpair 53 199 · connect 42 203 · bind 49 200 · listen 50 201
accept 43 202 · accept4 288 242 · sendto 44 206 · sendmsg 46 211 · sendmmsg 307 269
recvfrom 45 207 · recvmsg 47 212 · recvmmsg 299 243
fork 57 None · vfork 58 None · execve 59 221 · execveat 322 281 · setsid 112 157 · setpgid 109 154
ptrace 101 117 · process_vm_readv 310 270 · process_vm_writev 311 271 · kcmp 312 272
pidfd_open 434 434 · pidfd_getfd 438 438 · pidfd_send_signal 424 424 · process_madvise 440 440
add_key 248 217 · request_key 249 218 · keyctl 250 219
io_uring_setup 425 425 · io_uring_enter 426 426 · io_uring_register 427 427
bpf 321 280 · perf_event_open 298 241 · userfaultfd 323 282
mount 165 40 · umount2 166 39 · pivot_root 155 41 · chroot 161 51 · mount_setattr 442 442
open_tree 428 428 · move_mount 429 429 · fsopen 430 430 · fsconfig 431 431 · fsmount 432 432
fspick 433 433 · unshare 272 97 · setns 308 268
init_module 175 105 · finit_module 313 273 · delete_module 176 106
kexec_load 246 104 · kexec_file_load 320 294 · reboot 169 142 · swapon 167 224 · swapoff 168 225
acct 163 89 · quotactl 179 60 · syslog 103 116 · iopl 172 None · ioperm 173 None
settimeofday 164 170 · clock_settime 227 112 · adjtimex 159 171 · clock_adjtime 305 266
sethostname 170 161 · setdomainname 171 162 · personality 135 92
name_to_handle_at 303 264 · open_by_handle_at 304 265 · fanotify_init 300 262
memfd_create 319 279 · memfd_secret 447 447 · mknod 133 None · mknodat 259 33 · vmsplice 278 75
setuid 105 146 · setgid 106 144 · setreuid 113 145 · setregid 114 143 · setgroups 116 159
setresuid 117 147 · setresgid 119 149 · setfsuid 122 151 · setfsgid 123 152
shmget 29 194 · shmat 30 196 · shmctl 31 195 · semget 64 190 · msgget 68 186 · mq_open 240 180
"""
ARCHITECTURES = {"x86_64": (1, 0xC000003E), "aarch64": (2, 0xC00000B7)}  # column, audit number
CLONE, CLONE3, IOCTL = {1: 56, 2: 220}, 435, {1: 16, 2: 29}
CLONE_THREAD, TIOCSTI, TIOCLINUX = 0x10000, 0x5412, 0x541C
X32_CALLS = 0x40000000

LOAD, JUMP_EQUAL, JUMP_ABOVE, JUMP_BITS, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
NUMBER, ARCHITECTURE, FIRST, SECOND = 0, 4, 16, 24  # offsets in struct seccomp_data
ALLOW, REFUSE, KILL = 0x7FFF0000, 0x00050000, 0x80000000
FILTER_MODE = 2


class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_char_p)]


def read_table(machine: str) -> dict[str, int]:
    """The numbers of the refused calls on this machine, by name."""
    column, _ = ARCHITECTURES[machine]
    rows = (row.split() for row in REFUSED.replace("·", "\n").strip().splitlines())
    return {row[0]: int(row[column]) for row in rows if row[column] != "None"}


def build_filter(machine: str) -> bytes:
    """The filter as a program for the kernel: eight bytes for each instruction."""
    column, architecture = ARCHITECTURES[machine]
    code = [
        (LOAD, 0, 0, ARCHITECTURE),
        (JUMP_EQUAL, 1, 0, architecture),
        (RETURN, 0, 0, KILL),
        (LOAD, 0, 0, NUMBER),
        (JUMP_ABOVE, 0, 1, X32_CALLS),
        (RETURN, 0, 0, REFUSE | errno.EPERM),
    ]
    for number in read_table(machine).values():
        code += [(JUMP_EQUAL, 0, 1, number), (RETURN, 0, 0, REFUSE | errno.EPERM)]
    # The flags of clone3 lie in memory, which a filter cannot read: the C library then uses clone.
    code += [(JUMP_EQUAL, 0, 1, CLONE3), (RETURN, 0, 0, REFUSE | errno.ENOSYS)]
    code += [
        (JUMP_EQUAL, 0, 4, CLONE[column]),
        (LOAD, 0, 0, FIRST),
        (JUMP_BITS, 1, 0, CLONE_THREAD),
        (RETURN, 0, 0, REFUSE | errno.EPERM),
        (RETURN, 0, 0, ALLOW),
        (JUMP_EQUAL, 0, 4, IOCTL[column]),
        (LOAD, 0, 0, SECOND),
        (JUMP_EQUAL, 1, 0, TIOCSTI),
        (JUMP_EQUAL, 0, 1, TIOCLINUX),
        (RETURN, 0, 0, REFUSE | errno.EPERM),
        (RETURN, 0, 0, ALLOW),
    ]
    return b"".join(struct.pack("=HBBI", *each) for each in code)


def install() -> None:
    """Refuse these calls in this process for good; no_new_privs must be set."""
    machine = platform.machine()
    if machine not in ARCHITECTURES:
        raise OSError(errno.ENOSYS, f"no list of system calls for {machine}")
    code = build_filter(machine)
    kernel.prctl(kernel.PR_SET_SECCOMP, FILTER_MODE, Program(len(code) // 8, code))
