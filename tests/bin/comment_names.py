"""comment_names.py FILE ...: names with () in comments of C sources that no source has.

A comment that speaks of a function which is gone, or has another name now, is worse than none.
"""

import re
import sys

COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
# Of Python and torch, and one that nobody may call
OF_OTHERS = {"_sleep", "apply_chat_template", "repr", "setlocale", "str"}


def main(paths):
    texts = {}
    for path in paths:
        with open(path, encoding="utf-8", errors="replace") as file:
            texts[path] = file.read()
    code = COMMENT.sub(" ", "\n".join(texts.values()))
    known = set(re.findall(r"\b[A-Za-z_]\w*", code)) | OF_OTHERS
    for path, text in texts.items():
        for comment in COMMENT.finditer(text):
            line = text.count("\n", 0, comment.start()) + 1
            for name in re.findall(r"\b([a-z_][a-z0-9_]*)\(\)", comment.group()):
                if name not in known:
                    print(f"{path}:{line}: {name}()")


main(sys.argv[1:])
