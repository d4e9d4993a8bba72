"""The registers of products of warpgroups (wgmma), which are under way until they are waited for.

The PTX ISA, "wgmma.mma_async": no other instruction may use the accumulators of a product, or
registers that hold its a operand, before a wgmma.wait_group that waits for it; products of one
shape may have the same accumulators. And between a write to such a register and the product there
must be a wgmma.fence. Both are checked by variables of the translated function, one pair for each
list of registers that a product is given: in which group its last product is, and whether it has
been written since the last fence.
"""

from ptx_module import Unknown


def registers_of(operand):
    """{%f1, %f2} -> ("%f1", "%f2"); () for a descriptor"""
    if not operand.startswith("{"):
        return ()
    return tuple(x.strip() for x in operand[1:-1].split(","))


class Products:
    """What the translation of a function has besides its instructions"""

    def __init__(self, function, all_statements):
        self.lists = []                 # (role, registers): d or a
        self.of = {}                    # register -> numbers of the lists it is in
        for s in all_statements:
            if s.kind == "instruction" and s.text.startswith("wgmma.mma_async"):
                for role, operand in zip("da", s.operands):
                    self.add(role, registers_of(operand))
        if self.lists and not function.is_kernel:
            raise Unknown("wgmma in a function that is called")

    def add(self, role, registers):
        """A list of registers of a product"""
        if not registers or (role, registers) in self.lists:
            return
        for name in registers:
            self.of.setdefault(name, set()).add(len(self.lists))
        self.lists.append((role, registers))

    def declarations(self):
        """Variables of the function"""
        if not self.lists:
            return []
        return ["\tu32 group_ = 1, ended_ = 0;"] + [
            f"\tu32 group_{i}_ = 0; bool written_{i}_ = true;" for i in range(len(self.lists))]

    def before(self, s, accessed):
        """Checks in front of an instruction that uses these registers"""
        if s.text.startswith("wgmma.mma_async"):
            return self.before_product(s)
        numbers = sorted(set().union(*(self.of[x] for x in accessed if x in self.of)))
        return "".join(f"under_way(group_{i}_, ended_, {s.line}); " for i in numbers)

    def before_product(self, s):
        """Its accumulators may be those of products before it, its a operand theirs."""
        checks = []
        for role, operand in zip("da", s.operands):
            registers = registers_of(operand)
            shared = set().union(*(self.of[x] for x in registers))
            for i in sorted(shared):
                allowed = self.lists[i][0] == "a" if role == "a" else (
                    self.lists[i] == (role, registers))
                if not allowed:
                    checks.append(f"under_way(group_{i}_, ended_, {s.line}); ")
            if registers:
                number = self.lists.index((role, registers))
                checks.append(f"registers_fenced(written_{number}_, {s.line}); ")
        return "".join(checks)

    def after(self, s, written):
        """What an instruction changes"""
        if not self.lists:
            return ""
        if s.text.startswith("wgmma.mma_async"):
            used = [self.lists.index((role, registers_of(operand)))
                    for role, operand in zip("da", s.operands) if registers_of(operand)]
            return "".join(f" group_{i}_ = group_;" for i in used)
        if s.text.startswith("wgmma.fence"):
            return "".join(f" written_{i}_ = false;" for i in range(len(self.lists)))
        if s.text.startswith("wgmma.commit_group"):
            return " group_++;"
        if s.text.startswith("wgmma.wait_group"):
            left = int(s.operands[0]) + 1
            return f" if (group_ > {left} + ended_) ended_ = group_ - {left};"
        numbers = sorted(set().union(*(self.of[x] for x in written if x in self.of)))
        return "".join(f" written_{i}_ = true;" for i in numbers)
