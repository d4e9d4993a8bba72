#!/usr/bin/env python3
"""peak.py COMMAND...: runs it and prints the largest resident set that it had, in bytes, on
standard error's last line."""

import os
import sys

# A child of ours begins with what we hold; so that this does not count, the command has to be a
# small process of its own.
pid = os.posix_spawnp(sys.argv[1], sys.argv[1:], os.environ)
_, status, usage = os.wait4(pid, 0)
print(usage.ru_maxrss * 1024, file=sys.stderr)
sys.exit(os.waitstatus_to_exitcode(status))
