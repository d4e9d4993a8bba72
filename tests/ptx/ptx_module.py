"""Reads nvcc's PTX: functions of a module, and the statements of a function.

Only what nvcc writes is read. Anything else raises Unknown, which names it.
"""

import re

# Bytes of a value of each type
SIZE = {"pred": 1, "b8": 1, "u8": 1, "s8": 1, "b16": 2, "u16": 2, "s16": 2, "f16": 2, "b32": 4,
        "u32": 4, "s32": 4, "f32": 4, "b64": 8, "u64": 8, "s64": 8, "f64": 8}

VARIABLE = re.compile(r"(?:\.align\s+(\d+)\s+)?\.(\w+)\s+([\w$]+)(?:\[(\d+)\])?$")
HEAD = re.compile(r"^[ \t]*(?:\.visible\s+|\.weak\s+)?\.(entry|func)\s+", re.M)
LABEL = re.compile(r"([\w$]+):(?!:)\s*")
GUARDED = re.compile(r"@(!?)(%?\w+)\s+")
INSTRUCTION = re.compile(r"([a-z][\w:.]*)\s*(.*)$", re.S)


class Unknown(Exception):
    """Something of PTX that is not translated."""


class Variable:
    """A parameter, or an array in shared, local or global memory."""

    def __init__(self, text):
        found = VARIABLE.match(text.strip())
        if not found:
            raise Unknown("variable " + text.strip())
        self.type, self.name = found[2], found[3]
        self.bytes = SIZE[self.type] * int(found[4] or 1)
        self.align = int(found[1] or SIZE[self.type])


class Function:
    """A kernel (.entry), or a function that kernels call (.func).

    line is the number of the line in the file where the body begins.
    """

    def __init__(self, name, is_kernel, results, params, body, line):
        self.name, self.is_kernel = name, is_kernel
        self.results, self.params = results, params
        self.body, self.line = body, line


class Statement:
    """An instruction, with its operands as they are written, or a label, brace or directive."""

    def __init__(self, kind, line, text, guard="", operands=()):
        self.kind, self.line, self.text = kind, line, text
        self.guard, self.operands = guard, operands


def split_operands(text):
    """Splits at commas that are in no brackets."""
    parts, depth, start = [], 0, 0
    for i, c in enumerate(text):
        if c in "{[(":
            depth += 1
        elif c in "}])":
            depth -= 1
        elif c == "," and depth == 0:
            parts.append(text[start:i].strip())
            start = i + 1
    last = text[start:].strip()
    return parts + [last] if last else parts


def without_comments(text):
    """The text without comments; lines stay where they are."""
    return re.sub(r"//[^\n]*", "", text)


def end_of_block(text, start):
    """Where the brace closes that is open at start."""
    depth = 1
    for found in re.compile("[{}]").finditer(text, start):
        depth += 1 if found[0] == "{" else -1
        if depth == 0:
            return found.start()
    raise Unknown("a block that does not end")


def functions(text):
    """The functions of a module that have a body, in order."""
    for head in HEAD.finditer(text):
        brace, semicolon = text.find("{", head.end()), text.find(";", head.end())
        if brace < 0 or 0 <= semicolon < brace:
            continue                    # a declaration
        lists = re.match(r"\s*(?:\(([^)]*)\)\s*)?([\w$]+)\s*(?:\(([^)]*)\))?",
                         text[head.end():brace])
        names = [[Variable(x.strip()[len(".param"):]) for x in split_operands(part or "")]
                 for part in (lists[1], lists[3])]
        yield Function(lists[2], head[1] == "entry", names[0], names[1],
                       text[brace + 1:end_of_block(text, brace + 1)],
                       text.count("\n", 0, brace) + 1)


def module_variables(text):
    """Variables outside of functions: name -> (space, Variable, values or None)"""
    found = {}
    for space, declared, values in re.findall(
            r"^(?:\.extern\s+|\.visible\s+|\.weak\s+)*\.(shared|global|const)\s+([^;={]*?)\s*"
            r"(?:=\s*\{([^}]*)\})?;", text, re.M):
        external = declared.endswith("[]")
        variable = Variable(declared[:-2] if external else declared)
        found[variable.name] = ("dynamic" if external else space, variable, values or None)
    return found


def one_statement(text, line):
    """A text that ended with a semicolon, without labels before it"""
    if text.startswith("."):
        return Statement("directive", line, text)
    guard = ""
    guarded = GUARDED.match(text)
    if guarded:
        guard, text = guarded[1] + guarded[2], text[guarded.end():]
    parts = INSTRUCTION.match(text)
    if not parts:
        raise Unknown("statement " + text)
    return Statement("instruction", line, parts[1], guard,
                     split_operands(parts[2].replace("\n", " ")))


def statements(function):
    """The statements of a function. A brace that begins one opens or closes a scope."""
    line = function.line
    for raw in function.body.split(";"):
        at = line
        line += raw.count("\n")
        text = raw
        while True:
            stripped = text.lstrip()
            at += text[:len(text) - len(stripped)].count("\n")
            text = stripped
            label = LABEL.match(text)
            loc = re.match(r"\.loc\s[^\n]*\n", text)
            if text[:1] in ("{", "}"):
                yield Statement("open" if text[0] == "{" else "close", at, text[0])
                text = text[1:]
            elif label:
                yield Statement("label", at, label[1])
                at += label[0].count("\n")
                text = text[label.end():]
            elif loc:                   # says where in the source; ends without a semicolon
                text = text[loc.end() - 1:]
            else:
                break
        if text.strip() and not re.match(r"\.loc\s", text):
            yield one_statement(text.strip(), at)
