"""Runs `plimsoll top` in pseudo-terminals: PROGRAM, the number of the process, a destination."""

import fcntl
import os
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time

WIDTH, HEIGHT = 80, 24


class Terminal:
    """A program in a terminal, and what the terminal shows."""

    def __init__(self, words):
        self.master, self.slave = os.openpty()
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("4H", HEIGHT, WIDTH, 0, 0))
        self.before = termios.tcgetattr(self.slave)
        ends = {"stdin": self.slave, "stdout": self.slave, "stderr": self.slave}
        self.process = subprocess.Popen(words, start_new_session=True, **ends)
        self.seen = b""

    def read(self):
        if select.select([self.master], [], [], 0.1)[0]:
            self.seen += os.read(self.master, 65536)

    def lines(self):
        """The lines of the screen: text and movements of the cursor are all that is drawn."""
        grid = [[" "] * WIDTH for _ in range(HEIGHT)]
        x = y = 0
        text = self.seen.decode(errors="replace")
        for row, column, _, character in re.findall(
            r"\x1b\[(\d+);(\d+)H|(\x1b\[[?\d;]*[A-Za-z])|([^\x1b])", text
        ):
            if row:
                x, y = int(column) - 1, int(row) - 1
            elif character and x < WIDTH and y < HEIGHT:
                grid[y][x] = character
                x += 1
        return ["".join(line) for line in grid]

    def wait(self, wanted):
        """Waits until a line of the screen has this pattern."""
        until = time.monotonic() + 30
        while not any(re.search(wanted, line) for line in self.lines()):
            assert time.monotonic() < until, "\n".join([f"no {wanted}", *self.lines()])
            assert self.process.poll() is None, self.seen
            self.read()

    def ended(self):
        """Waits for the end. Returns the text behind the alternate screen."""
        until = time.monotonic() + 30
        while self.process.poll() is None:
            assert time.monotonic() < until, "it still runs"
            self.read()
        self.read()
        assert self.process.returncode == 0, (self.process.returncode, self.seen[-500:])
        assert termios.tcgetattr(self.slave) == self.before, "the terminal is not as it was"
        head, left, rest = self.seen.rpartition(b"\x1b[?1049l")
        assert left and b"\x1b[?1049h" in head and b"\x1b[?1049h" not in rest, self.seen[-500:]
        assert rest.rfind(b"\x1b[?25l") <= rest.rfind(b"\x1b[?25h"), "the cursor is hidden"
        return rest


def main(program, pid, destination):
    words = [program, "top", "--pid", pid, "--interval", "200ms"]
    by_key = Terminal(words)
    raw = termios.tcgetattr(by_key.slave)
    # State, up, and a rate down that is not zero.
    by_key.wait(rf"^{re.escape(destination)} +ESTAB +\S+ +[1-9][0-9.]*[kM]? ")
    assert termios.tcgetattr(by_key.slave) != raw, "the keys would wait for Enter"
    os.write(by_key.master, b"q")
    by_key.ended()
    by_signal = Terminal(words)
    by_signal.wait("HELD UP BY")
    by_signal.process.send_signal(signal.SIGTERM)
    by_signal.ended()
    without = Terminal(words)
    without.wait("HELD UP BY")
    os.close(without.slave)
    os.close(without.master)
    status = without.process.wait(30)
    assert status == 1, f"without a terminal it ended with {status}"
    by_end = Terminal(words)
    by_end.wait("HELD UP BY")
    os.kill(int(pid), signal.SIGTERM)
    said = by_end.ended()
    assert f"process {pid} has ended".encode() in said, said


main(*sys.argv[1:])
