#!/usr/bin/env python3
"""Translates nvcc's PTX to C++ that runs on the emulator of tests/cuda.

usage: ptx_to_c.py [--only REGEX] FILE.ptx OUT.cc

One C++ function for each kernel, one statement for each instruction; the number that runtime
functions get last is the instruction's line in FILE.ptx. What is not known ends the program
with its name. --only: kernels whose names the expression is found in.
"""

import argparse
import re
import sys

import ptx_instructions                 # which adds its forms to those of ptx_forms
import ptx_numbers                      # likewise
from ptx_forms import Operands, opcode_in_c
from ptx_module import Unknown, functions, module_variables, statements, without_comments
from ptx_products import Products
from ptx_registers import Registers

ENDS_BLOCK = ("bra", "ret", "exit")


class Translated:
    """A function in C++"""

    def __init__(self, function, module):
        self.function = function
        self.registers = Registers(function, module)
        self.lines, self.instructions = [], 0
        self.block_start, self.block_count = 0, 0
        all_statements = list(statements(function))
        self.products = Products(function, all_statements)
        for s in all_statements:
            try:
                self.add(s)
            except Unknown as unknown:
                raise Unknown(f"line {s.line}, {function.name}: {unknown}") from None
        self.end_block()

    def end_block(self):
        """Counts the instructions that run one after another at their beginning."""
        if self.block_count > 0:
            self.lines.insert(self.block_start, f"\texecuted += {self.block_count};")
        self.block_start, self.block_count = len(self.lines), 0

    def add(self, statement):
        """Translates a statement."""
        if statement.kind == "label":
            self.end_block()
            self.lines.append(self.registers.label(statement.text) + ": ;")
            self.block_start = len(self.lines)
        elif statement.kind == "open":
            self.registers.scopes.append({})
        elif statement.kind == "close":
            self.registers.scopes.pop()
        elif statement.kind == "directive":
            self.registers.declare(statement.text)
        else:
            self.add_instruction(statement)

    def add_instruction(self, statement):
        """Translates an instruction, with its guard."""
        self.registers.accessed, self.registers.written = set(), set()
        code = opcode_in_c(statement.text,
                           Operands(self.registers, statement.line, statement.operands))
        code = (self.products.before(statement, self.registers.accessed) + code +
                self.products.after(statement, self.registers.written))
        if statement.guard:
            negated = "!" * statement.guard.startswith("!")
            condition = self.registers.value(statement.guard.lstrip("!"), "pred")
            code = f"if ({negated}{condition}) {{ {code} }}"
        self.lines.append("\t" + code)
        self.instructions += 1
        self.block_count += 1
        if statement.text.split(".")[0] in ENDS_BLOCK:
            self.end_block()

    def head(self):
        """The function's first line in C++"""
        if self.function.is_kernel:
            return f"static void {self.function.name}(const unsigned char *param)"
        params = ([f"unsigned char *{v.name}" for v in self.function.results] +
                  [f"const unsigned char *{v.name}" for v in self.function.params])
        return f"static void {self.function.name}({', '.join(params)})"

    def definition(self):
        """All of it in C++"""
        r = self.registers
        text = [self.head(), "{"]
        if self.function.is_kernel:
            text.append(f"\tenter(&entry_of_{self.function.name}, param);")
        by_type = {}
        for name in sorted(r.used):
            by_type.setdefault(r.used[name], []).append(name + " = 0")
        text += [f"\t{kind} {', '.join(names)};" for kind, names in by_type.items()]
        text += [f"\talignas(16) unsigned char {name}[{v.bytes}];"
                 for name, v in r.arrays.items()]
        if any("carry)" in x for x in self.lines):
            text.append("\tu32 carry = 0;")
        text += self.products.declarations()
        return "\n".join(text + self.lines + ["}"]) + "\n"

    def entry(self):
        """What the runtime knows of a kernel"""
        offsets = self.registers.offsets + [self.registers.param_bytes]
        name = self.function.name
        return (f"static const unsigned offsets_of_{name}[] = {{ "
                f"{', '.join(map(str, offsets))} }};\n"
                f"static struct entry entry_of_{name} = {{ {{ {name}, {len(offsets) - 1}, "
                f"offsets_of_{name} }}, \"{name}\", PTX_FILE, "
                f"{self.registers.shared_bytes}, {self.instructions} }};\n")


def constants(module):
    """Variables in global and constant memory, which kernels here only read"""
    text = ""
    for name, (space, variable, values) in module.items():
        if space in ("global", "const"):
            if values is None or variable.type not in ("b8", "u8"):
                raise Unknown(f"variable {name} in {space} memory")
            text += (f"alignas({variable.align}) static const unsigned char {name}"
                     f"[{variable.bytes}] = {{ {values} }};\n")
    return text


def in_cpp(text, path, only):
    """A module in C++, and how many kernels and instructions it has"""
    text = without_comments(text)
    module = module_variables(text)
    translated = [Translated(f, module) for f in functions(text)
                  if not f.is_kernel or only is None or only.search(f.name)]
    kernels = [t for t in translated if t.function.is_kernel]
    header = "hopper" if "mbarrier" in text or "wgmma" in text else "runtime"
    out = [f"#define PTX_FILE \"{path}\"\n#include \"tests/ptx/ptx_{header}.h\"\n"
           "using namespace ptx;\n", constants(module)]
    out += [t.head() + ";\n" for t in translated]
    out += [t.entry() for t in kernels]
    out += [t.definition() for t in translated]
    out.append("static const struct registered registered[] = {\n" +
               "".join(f"\t{{ &entry_of_{t.function.name} }},\n" for t in kernels) +
               "".join(f"\t{{ {name}, sizeof {name} }},\n" for name, v in module.items()
                       if v[0] in ("global", "const")) +
               "\t{ nullptr } };\n")
    return "".join(out), len(kernels), sum(t.instructions for t in translated)


def main():
    """The command line"""
    parser = argparse.ArgumentParser(description="Translates nvcc's PTX to C++.")
    parser.add_argument("--only", type=re.compile, metavar="REGEX",
                        help="kernels whose names the expression is found in")
    parser.add_argument("ptx")
    parser.add_argument("out")
    arguments = parser.parse_args()
    with open(arguments.ptx, encoding="utf-8") as file:
        text = file.read()
    try:
        code, _, _ = in_cpp(text, arguments.ptx, arguments.only)
    except Unknown as unknown:
        sys.exit(f"{arguments.ptx}: {unknown}: not translated")
    with open(arguments.out, "w", encoding="utf-8") as file:
        file.write(code)


if __name__ == "__main__":
    main()
