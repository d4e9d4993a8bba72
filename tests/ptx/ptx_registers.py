"""The registers, addresses and memory of a function that is translated to C++."""

import re

from ptx_module import SIZE, Unknown, Variable

# C++ types of values, where they are not called as in PTX, and of registers
VALUE = {"b8": "u8", "b16": "u16", "b32": "u32", "b64": "u64", "f16": "u16"}
REGISTER = dict(VALUE, pred="bool")

SPECIAL = {f"%{ptx}.{axis}": f"emulator::{ours}.{axis}" for axis in "xyz" for ptx, ours in
           (("tid", "thread"), ("ctaid", "block"), ("ntid", "block_dim"), ("nctaid", "grid_dim"))}
SPECIAL["%laneid"] = "emulator::lane"

# Where static shared memory begins, behind what the system keeps; ptx_runtime.h has the same.
STATIC = 0x400


def value_type(ptx_type):
    """The C++ type of a value"""
    return VALUE.get(ptx_type, ptx_type)


class Registers:
    """Names of a function: what an operand is in C++."""

    def __init__(self, function, module):
        self.function, self.module = function, module
        self.scopes, self.ranges = [{}], []
        self.used = {}                  # C++ name -> type
        self.accessed, self.written = set(), set()      # by an instruction
        self.arrays = {}                # C++ name -> Variable: local memory, arguments of calls
        self.shared, self.shared_bytes = {}, 0
        self.memory, self.fresh = {}, 0
        self.offsets, self.param_bytes = self.place_params()

    def place_params(self):
        """A kernel's parameters are packed one behind the other; those of others are arrays."""
        offsets, at = [], 0
        for p in self.function.params:
            at = (at + p.align - 1) // p.align * p.align
            offsets.append(at)
            name = f"(param + {at})" if self.function.is_kernel else p.name
            self.memory[p.name] = ("param", name, p.bytes)
            at += p.bytes
        for p in self.function.results:
            self.memory[p.name] = ("param", p.name, p.bytes)
        return offsets, at

    def place_shared(self, variable):
        """Puts a variable into the block's static shared memory."""
        at = (self.shared_bytes + variable.align - 1) // variable.align * variable.align
        self.shared_bytes = at + variable.bytes
        self.shared[variable.name] = STATIC + at

    def declare(self, text):
        """A directive within a function"""
        found = re.match(r"\.reg\s+\.(\w+)\s+(.*)$", text, re.S)
        if found:
            self.declare_registers(found[1], found[2])
            return
        found = re.match(r"\.(shared|local|param)\s+(.*)$", text, re.S)
        if found and found[1] == "shared":
            self.place_shared(Variable(found[2]))
        elif found:
            variable = Variable(found[2])
            self.fresh += 1
            name = f"{variable.name}_{self.fresh}"
            self.arrays[name] = variable
            self.memory[variable.name] = (found[1], name, variable.bytes)
        elif not re.match(r"\.(pragma|loc|maxntid|minnctapersm|branchtargets)\b", text):
            raise Unknown("directive " + text)

    def declare_registers(self, ptx_type, names):
        """.reg: a range of registers, or some of an inner scope, which hide outer ones."""
        if ptx_type not in SIZE:
            raise Unknown("register of type " + ptx_type)
        kind = REGISTER.get(ptx_type, ptx_type)
        for name in names.split(","):
            found = re.fullmatch(r"(%\w+?)<(\d+)>", name.strip())
            if found:
                self.ranges.append((re.compile(re.escape(found[1]) + r"\d+$"), kind))
                continue
            self.fresh += 1
            self.scopes[-1][name.strip()] = (f"v_{name.strip().lstrip('%')}_{self.fresh}", kind)

    def label(self, name):
        """A label that is declared; one of an inner scope is known there only."""
        plain = name.replace("$", "_")
        if len(self.scopes) == 1:
            return plain
        self.fresh += 1
        self.scopes[-1][name + ":"] = f"{plain}_{self.fresh}"
        return self.scopes[-1][name + ":"]

    def target(self, name):
        """A label that is jumped to"""
        for scope in reversed(self.scopes):
            if name + ":" in scope:
                return scope[name + ":"]
        return name.replace("$", "_")

    def register(self, name):
        """(C++ name, type) of a register, or None."""
        self.accessed.add(name)
        for scope in reversed(self.scopes):
            if name in scope:
                self.used[scope[name][0]] = scope[name][1]
                return scope[name]
        for pattern, kind in self.ranges:
            if pattern.match(name):
                self.used["v_" + name[1:]] = kind
                return "v_" + name[1:], kind
        return None

    def constant(self, text):
        """A number, or None."""
        found = re.fullmatch(r"(-?)(0[xX][0-9a-fA-F]+|\d+)U?", text)
        if found:
            wide = int(found[2], 0) >= 2 ** 63
            return f"{found[2]}ull" if wide else f"((s64){found[1]}{found[2]}ll)"
        found = re.fullmatch(r"0([fFdD])([0-9a-fA-F]+)", text)
        if found:
            return (f"bits_f32(0x{found[2]}u)" if found[1] in "fF" else
                    f"bits_f64(0x{found[2]}ull)")
        return None

    def named_memory(self, name):
        """The address of a variable, as a number of 64 bits, or None."""
        if name in self.memory:
            return f"(u64)(uintptr_t){self.memory[name][1]}"
        if name not in self.module and name not in self.shared:
            return None
        if name not in self.shared and self.module[name][0] == "shared":
            self.place_shared(self.module[name][1])
        if name in self.shared:
            return f"(u64){self.shared[name]:#x}"
        return "(u64)DYNAMIC" if self.module[name][0] == "dynamic" else f"(u64)(uintptr_t){name}"

    def value(self, operand, ptx_type):
        """The C++ expression of an operand that is read as a value of that type"""
        want = value_type(ptx_type)
        register = self.register(operand)
        if register:
            name, kind = register
            if ptx_type == "pred" and kind != "bool" or ptx_type != "pred" and kind == "bool":
                raise Unknown(f"{operand} as {ptx_type}")
            return name if ptx_type == "pred" or kind == want else f"value_of<{want}>({name})"
        if operand in SPECIAL:
            return f"({want}){SPECIAL[operand]}"
        number = self.constant(operand)
        if number is None:
            number = self.named_memory(operand)
        if number is None:
            raise Unknown("operand " + operand)
        if number.startswith("bits_"):
            return number if number[5:8] == want else f"value_of<{want}>({number})"
        return f"({number} != 0)" if ptx_type == "pred" else f"({want})({number})"

    def put(self, operand, ptx_type, expression):
        """The C++ statement that stores a value of that type into a register"""
        if operand == "_":
            return f"(void)({expression});"
        register = self.register(operand)
        self.written.add(operand)
        if not register:
            raise Unknown("destination " + operand)
        name, kind = register
        if ptx_type == "pred" or kind == value_type(ptx_type):
            return f"{name} = {expression};"
        return f"set({name}, ({value_type(ptx_type)})({expression}));"

    def address(self, operand):
        """([register or name + offset]) -> (C++ expression, name, offset)"""
        found = re.fullmatch(r"\[\s*([%\w$.]+)\s*(?:\+\s*(-?\d+))?\s*\]", operand)
        if not found:
            raise Unknown("address " + operand)
        offset = int(found[2] or 0)
        register = self.register(found[1])
        base = register[0] if register else self.named_memory(found[1])
        if base is None:
            raise Unknown("address " + operand)
        if register and register[1] == "u32":       # of shared memory: 32 bits, as ptxas adds
            return f"(u32)({base} + ({offset}))", found[1], offset
        return f"(u64)({base} + ({offset}))", found[1], offset
