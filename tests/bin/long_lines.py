"""long_lines.py FILE ...: lines of more than 100 columns, with tabs of 8."""

import sys

for path in sys.argv[1:]:
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if len(line.rstrip("\n").expandtabs(8)) > 100:
                print(f"{path}:{number}")
