"""python -m kvpipe ARGUMENT ...: the program kvpipe"""

import os
import sys

from . import program

os.execv(program('kvpipe'), ['kvpipe', *sys.argv[1:]])
