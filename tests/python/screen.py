"""A program on a terminal of its own: what it shows, what it is sent, and whether it gives the terminal back."""

import fcntl
import os
import pty
import select
import signal
import struct
import termios
import time

import pyte

# How long anything may take to show up; machines that run tests are busy.
PATIENCE = 60


class Screen:
    """Runs `command` on a pseudo-terminal of this size and reads its screen as a person would."""

    def __init__(self, command, columns=80, lines=24, environment=None, cwd=None):
        self.emulated = pyte.Screen(columns, lines)
        self.stream = pyte.ByteStream(self.emulated)
        self.written = b""
        self.status = None
        master, slave = pty.openpty()
        self.fd = master
        self.size(columns, lines, tell=False)
        # Held open, so that its state can be asked for when the program has gone.
        self.slave = slave
        self.before = termios.tcgetattr(slave)
        self.pid = os.fork()
        if self.pid == 0:
            try:
                os.setsid()
                fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
                for number in (0, 1, 2):
                    os.dup2(slave, number)
                os.close(master)
                if cwd:
                    os.chdir(cwd)
                variables = dict(os.environ, TERM="xterm-256color", LANG="C.UTF-8", **(environment or {}))
                os.execve(command[0], [str(word) for word in command], variables)
            finally:
                os._exit(127)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.status is None:
            os.kill(self.pid, signal.SIGKILL)
            self.wait()
        os.close(self.fd)
        os.close(self.slave)

    def read(self, seconds=0.05):
        """Takes in what is written within so many seconds; says whether there was anything."""
        ready, _, _ = select.select([self.fd], [], [], seconds)
        if not ready:
            return False
        try:
            data = os.read(self.fd, 1 << 16)
        except OSError:
            return False
        self.written += data
        self.stream.feed(data)
        return bool(data)

    def text(self):
        return "\n".join(line.rstrip() for line in self.emulated.display)

    def until(self, is_it, what=""):
        """Reads until the screen is as wanted, a text that it shows or a function of it, and then to the end of that frame."""
        end = time.monotonic() + PATIENCE
        test = (lambda text: is_it in text) if isinstance(is_it, str) else is_it
        while not test(self.text()):
            if time.monotonic() > end:
                raise AssertionError(f"{what or is_it!r} does not show up on:\n{self.text()}")
            self.read()
        self.settle()
        return self.text()

    def settle(self):
        """Reads to the end of a frame: a terminal hands it over in pieces."""
        end = time.monotonic() + 2
        while self.read(0.05) and time.monotonic() < end:
            pass

    def keys(self, text):
        os.write(self.fd, text.encode())

    def size(self, columns, lines, tell=True):
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        if tell:
            self.emulated.resize(lines, columns)

    def signal(self, number):
        os.kill(self.pid, number)

    def wait(self):
        """Its exit status, as a shell shows it, once it has ended."""
        end = time.monotonic() + PATIENCE
        while self.status is None:
            self.read(0.01)
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.status = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
            elif time.monotonic() > end:
                raise AssertionError(f"it does not end; it shows:\n{self.text()}")
        while self.read(0.01):
            pass
        return self.status

    def is_given_back(self):
        """Whether modes are as they were, the other screen was left, and the cursor is shown."""
        left, entered = self.written.rfind(b"\x1b[?1049l"), self.written.rfind(b"\x1b[?1049h")
        shown, hidden = self.written.rfind(b"\x1b[?25h"), self.written.rfind(b"\x1b[?25l")
        return entered >= 0 and left > entered and shown > hidden and termios.tcgetattr(self.slave) == self.before
