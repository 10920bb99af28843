"""Python's own tests of sockets: a line of the name and the outcome of each."""

import unittest

MODULES = """test.test_socket test.test_socketserver test.test_asyncio.test_streams
test.test_asyncio.test_sock_lowlevel test.test_asyncore""".split()
# Sockets that are not of the network; VSOCK's tests wait for ever on some machines.
OTHERS = ["VSOCK", "Unix", "UNIX", "CAN", "RDS", "Bluetooth", "QIPCRTR", "LinuxKernelCrypto"]


class Outcomes(unittest.TestResult):
    def said(self, test, outcome):
        print(f"{test.id()}: {outcome}", flush=True)

    def addSuccess(self, test):
        self.said(test, "ok")

    def addError(self, test, error):
        self.said(test, f"error {error[0].__name__}")

    def addFailure(self, test, error):
        self.said(test, "failed")

    def addSkip(self, test, reason):
        self.said(test, "skipped")

    def addExpectedFailure(self, test, error):
        self.said(test, "failed as expected")


def tests_of(suite):
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from tests_of(test)
        elif not any(word in test.id() for word in OTHERS):
            yield test


def main():
    from test import support

    support.use_resources = ["network"]
    found = unittest.defaultTestLoader.loadTestsFromNames(MODULES)
    # A suite of them all, so that set-up of classes and modules happens.
    unittest.TestSuite(tests_of(found)).run(Outcomes())


main()
