"""A small process that ends what must not outlive the process that started it. Standard library only, run by path.

`warden.py sweep PARENT FOLDER` removes FOLDER if PARENT dies without having said goodbye.
`warden.py guard PARENT PROGRAM ARG...` runs a program in a session of its own and writes its wait status to standard
output; the program and all that descend from it die when the parent closes standard input, or dies.
"""

import ctypes
import os
import select
import shutil
import signal
import sys
import time

PDEATHSIG, CHILD_SUBREAPER = 1, 36  # linux/prctl.h
TICK = 1.0  # seconds between looks at the parent, for when a forked copy of it still holds the pipe open
PATIENCE = 60.0  # seconds to go on removing a folder in which processes that are being killed may still write


def abandoned(parent: int) -> bool:
    """Waits until the parent lets go; True if it did so without a goodbye."""
    poll = select.poll()
    poll.register(0, select.POLLIN)
    while not poll.poll(TICK * 1000):
        if os.getppid() != parent:
            return True
    return not os.read(0, 1)


def sweep(parent: int, folder: str) -> None:
    if abandoned(parent):
        end = time.monotonic() + PATIENCE
        while os.path.lexists(folder) and time.monotonic() < end:
            shutil.rmtree(folder, ignore_errors=True)
            time.sleep(0.05)


def children() -> list[int]:
    """The direct children of this process, orphans that were handed to it among them."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat") as stream:
                    fields = stream.read().rpartition(")")[2].split()
            except OSError:  # gone in the meantime
                continue
            if int(fields[1]) == os.getpid():
                found.append(int(name))
    return found


def kill_all() -> None:
    """Kills the children of this process; as each dies, its own children are handed over, until none is left."""
    while True:
        for pid in children():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def start(program: list[str], libc: ctypes.CDLL) -> int:
    """Forks and executes; this process has one thread, so the fork is safe."""
    warden = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    try:
        os.setsid()
        libc.prctl(PDEATHSIG, signal.SIGKILL)
        if os.getppid() != warden:
            os._exit(127)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.dup2(2, 1)
        os.execv(program[0], program)
    except OSError as error:
        os.write(2, f"{program[0]}: {error.strerror}\n".encode())
    finally:
        os._exit(127)


def guard(parent: int, program: list[str]) -> None:
    libc = ctypes.CDLL(None)
    libc.prctl(CHILD_SUBREAPER, 1)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    wake, awake = os.pipe()
    os.set_blocking(awake, False)
    signal.set_wakeup_fd(awake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    pid = start(program, libc)
    poll = select.poll()
    poll.register(0, select.POLLIN)
    poll.register(wake, select.POLLIN)
    while True:
        ready = [fd for fd, _ in poll.poll(TICK * 1000)]
        if wake in ready:
            os.read(wake, 4096)
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            try:
                os.write(1, f"{status}\n".encode())
            except OSError:  # nobody is there to read it
                pass
        if done or 0 in ready or os.getppid() != parent:
            kill_all()
            return


if __name__ == "__main__":
    if sys.argv[1] == "sweep":
        sweep(int(sys.argv[2]), sys.argv[3])
    else:
        guard(int(sys.argv[2]), sys.argv[3:])
