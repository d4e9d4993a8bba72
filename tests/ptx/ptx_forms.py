"""The forms of instructions that are known, and the operands of one.

FORMS has every form, with its types and modifiers; another form, also of a known instruction, is
Unknown. ptx_numbers.py and ptx_instructions.py fill it.
"""

import re

from ptx_module import Unknown

FORMS = []


def form(pattern):
    """The function below translates instructions of this form: a regular expression for all of
    the opcode, whose named groups it gets as arguments."""
    def add(function):
        FORMS.append((re.compile(f"(?:{pattern})$"), function))
        return function
    return add


class Operands:
    """The operands of one instruction, as C++"""

    def __init__(self, registers, line, operands):
        self.registers, self.line, self.all = registers, line, operands

    def value(self, index, ptx_type):
        """Operand number index, read"""
        return self.registers.value(self.all[index], ptx_type)

    def put(self, index, ptx_type, expression):
        """Stores into operand number index"""
        return self.registers.put(self.all[index], ptx_type, expression)

    def address(self, index):
        """Operand number index as an address"""
        return self.registers.address(self.all[index])

    def vector(self, index):
        """The registers of operand number index: of {a, b}, or one"""
        text = self.all[index]
        return ([x.strip() for x in text[1:-1].split(",")] if text.startswith("{") else [text])

    def values(self, index, ptx_type):
        """The elements of a vector, as the inside of C++ braces"""
        return ", ".join(self.registers.value(x, ptx_type) for x in self.vector(index))

    def put_each(self, index, ptx_type, array):
        """Stores the elements of a C++ array into a vector."""
        return " ".join(self.registers.put(x, ptx_type, f"{array}[{i}]")
                        for i, x in enumerate(self.vector(index)) if x != "_")


def opcode_in_c(opcode, o):
    """The C++ statement of an instruction"""
    for pattern, function in FORMS:
        found = pattern.match(opcode)
        if found:
            return function(o, **found.groupdict())
    raise Unknown("instruction " + opcode)
