"""What tests do to processes: wait for them, but not for ever, and take root's rights away without taking its files
away."""
import ctypes
import os
import struct
import time
from contextlib import contextmanager

VERSION = 0x20080522  # of Linux's capabilities
OVERRIDE, SEARCH = 1, 2  # the capabilities to write, and to read, what others own or forbid


def wait_until(condition, ended, what):
    "Wait until `condition()`; a process that has `ended()` before that is a failure at once, with what it said"
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < 1800, f'half an hour, and still not: {what}'
        if (said := ended()) is not None:
            if condition(): return  # just before it ended
            raise AssertionError(f'The process ended before {what}: {said}')
        time.sleep(.01)


def wait_for(process, condition, what):
    "`wait_until` for a `subprocess.Popen`"
    def ended():
        if process.poll() is None: return None
        return f'status {process.returncode}, {[f and f.read() for f in (process.stdout, process.stderr)]}'
    wait_until(condition, ended, what)


def capabilities(change):
    "Change the effective capabilities of this thread: `change` takes and gives a number of 64 bits"
    libc, header = ctypes.CDLL(None, use_errno=True), struct.pack('Ii', VERSION, 0)
    data = ctypes.create_string_buffer(24)
    if libc.capget(header, data): raise OSError(ctypes.get_errno(), 'capget')
    low, *rest, high, p, i = struct.unpack('6I', data.raw)
    wanted = change(low | high << 32)
    data.raw = struct.pack('6I', wanted & 0xffffffff, *rest, wanted >> 32, p, i)
    if libc.capset(header, data): raise OSError(ctypes.get_errno(), 'capset')
    return low | high << 32


@contextmanager
def as_anybody():
    """Let modes of files hold for root, too. Its user id stays: where Python lies in a private home folder, another
    user could no longer import the parts of the standard library that come late."""
    if os.geteuid(): yield; return
    before = capabilities(lambda now: now & ~(1 << OVERRIDE | 1 << SEARCH))
    try: yield
    finally: capabilities(lambda _: before)
