#!/usr/bin/env python3
"""Checks of ptx_to_c.py: what is not known is refused by its name, and where things stand."""

import sys

from ptx_forms import FORMS, Operands, opcode_in_c
from ptx_module import Function, Unknown, functions, module_variables, statements
from ptx_registers import Registers
from ptx_to_c import in_cpp

HEAD = ".version 9.0\n.target sm_90\n.address_size 64\n"
KERNEL = HEAD + (".entry k(\n\t.param .u32 k_param_0,\n\t.param .u64 k_param_1\n)\n"
                 "{\n%s\n\tret;\n}\n")
REGISTERS = (".reg .pred %p<4>;\n.reg .b16 %rs<4>;\n.reg .b32 %r<4>;\n.reg .f32 %f<4>;\n"
             ".reg .b64 %rd<4>;\n")

results = []


def check(name, right):
    """Counts a result, and says it when it is wrong."""
    results.append(right)
    if not right:
        print("FAILED: " + name)


def code_of(body):
    """The C++ of a kernel with that body"""
    return in_cpp(KERNEL % (REGISTERS + body), "k.ptx", None)[0]


def refused(body, words):
    """Is a kernel with that body refused, with a message that has these words?"""
    try:
        code_of(body)
    except Unknown as unknown:
        return words in str(unknown)
    return False


def check_refused():
    """Forms that gpu/ does not use must not pass as those that it uses."""
    for text, words in (
            ("frobnicate.u32 %r1, %r2;", "frobnicate.u32"),
            ("add.sat.s32 %r1, %r2, %r3;", "add.sat.s32"),
            ("fma.rn.ftz.f32 %f1, %f2, %f3, %f1;", "fma.rn.ftz.f32"),
            ("fma.rz.f32 %f1, %f2, %f3, %f1;", "fma.rz.f32"),
            ("ld.global.lu.u32 %r1, [%rd1];", "ld.global.lu.u32"),
            ("ld.shared::cluster.u32 %r1, [%r2];", "ld.shared::cluster.u32"),
            ("bar.sync 1;", "bar.sync 1"),
            ("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%f1}, {%r1}, {%r1}, {%f1};",
             "mma.sync.aligned.m16n8k8"),
            ("cp.async.ca.shared.global [%r1], [%rd1], 4;", "cp.async.ca.shared.global"),
            ("mov.u32 %r1, %smid;", "%smid"),
            ("mov.u32 %r1, %q7;", "%q7"),
            ("add.s32 %r1, %p1, 1;", "%p1 as s32"),
            ("ld.param.u32 %r1, [k_param_0+4];", "4 bytes at 4 of parameter k_param_0"),
            ("ld.param.v2.u32 {%r1, %r2}, [k_param_0];", "8 bytes at 0 of parameter"),
            (".shared .align 4 .b8 %x;", "variable")):
        check(f"{text} is refused", refused(text, words))
    check("the line of what is refused is said", refused("\n\nfoo.u32 %r1;", "line 16, k: "))


def check_scopes():
    """A register of an inner scope hides an outer one."""
    code = code_of("{\n.reg .b64 %r1;\nmov.u64 %r1, 5;\n}\nmov.u32 %r1, 6;")
    check("inner register", "v_r1_1 = (u64)(((s64)5ll));" in code)
    check("outer register", "\tv_r1 = (u32)(((s64)6ll));" in code)


def check_statements():
    """Lines, labels, guards, directives without a semicolon"""
    body = "\n.loc 1 2 3\nA:\n@!%p1 bra A;\n.local .align 8 .b8 depot[8];\n"
    found = [(s.kind, s.line, s.guard) for s in
             statements(Function("k", True, [], [], body, 10))]
    check(f"statements: {found}", found == [("label", 12, ""), ("instruction", 13, "!%p1"),
                                            ("directive", 14, "")])


def check_module():
    """Functions, their parameters and variables outside of them"""
    text = KERNEL % "" + (
        ".extern .shared .align 1024 .b8 memory[];\n.shared .align 8 .b8 of_warp[64];\n"
        ".global .align 8 .b8 table[2] = {1, 2};\n")
    names = [(f.name, f.line, [p.bytes for p in f.params]) for f in functions(text)]
    check(f"functions: {names}", names == [("k", 8, [4, 8])])
    spaces = {name: v[0] for name, v in module_variables(text).items()}
    check(f"variables: {spaces}", spaces == {"memory": "dynamic", "of_warp": "shared",
                                             "table": "global"})
    function = next(functions(text))
    check("the second parameter is aligned", Registers(function, {}).offsets == [0, 8])


def check_forms():
    """No instruction is of two forms."""
    for opcode in ("add.s32", "add.rn.f32", "add.rz.f32", "addc.cc.u32", "mul.lo.s16", "mov.pred",
                   "mul.wide.u32", "mad.lo.s32", "mad.lo.cc.u32", "max.f16x2", "max.f32",
                   "cvt.s16.s8", "cvt.f32.f16", "cvt.rn.f16.f32", "cvt.rn.f16x2.f32",
                   "cvt.rzi.s32.f32", "setp.ne.s16", "setp.neu.f32", "bar.sync", "bar.warp.sync",
                   "ld.global.nc.L1::no_allocate.v4.u32", "st.volatile.global.u32", "rcp.rn.f32",
                   "cp.async.wait_group", "vote.sync.ballot.b32", "ret"):
        known = sum(1 for pattern, _ in FORMS if pattern.match(opcode))
        check(f"{opcode} is of {known} forms", known == 1)


def check_operands():
    """cvt of two numbers: the first becomes the upper half; copysign takes its first's sign."""
    function = next(functions(KERNEL % REGISTERS))
    registers = Registers(function, {})
    for s in statements(function):
        if s.kind == "directive":
            registers.declare(s.text)
    for opcode, operands, code in (
            ("cvt.rn.bf16x2.f32", ["%r1", "%f1", "%f2"], "v_r1 = cvt_bf16x2(v_f1, v_f2);"),
            ("copysign.f32", ["%f1", "%f2", "%f3"], "v_f1 = copysignf(v_f3, v_f2);"),
            ("lop3.b32", ["%r1", "%r2", "%r3", "%r1", "0x84"],
             "v_r1 = (u32)((~v_r2 & v_r3 & ~v_r1) | (v_r2 & v_r3 & v_r1));"),
            ("selp.b32", ["%r1", "%r2", "%r3", "%p1"], "v_r1 = v_p1 ? v_r2 : v_r3;")):
        got = opcode_in_c(opcode, Operands(registers, 1, operands))
        check(f"{opcode}: {got}", got == code)


def check_products():
    """Registers of a product are used behind the wait, and written in front of a fence."""
    product = "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {%s}, {%s}, %%rd1, %%p1, 1, 1, 0;"
    d, a = ", ".join(f"%f{i}" for i in range(32)), "%r0, %r1, %r2, %r3"
    code = in_cpp(KERNEL % (REGISTERS.replace("%f<4>", "%f<33>") + (
        f"mov.f32 %f1, 0f00000000;\nwgmma.fence.sync.aligned;\n{product % (d, a)}\n"
        "wgmma.commit_group.sync.aligned;\nmov.u32 %r1, 5;\nwgmma.wait_group.sync.aligned 0;\n"
        "add.f32 %f32, %f2, %f3;\n")), "k.ptx", None)[0]
    for text in ("under_way(group_0_, ended_, 14); v_f1 = bits_f32(0x00000000u); "
                 "written_0_ = true;",
                 "; written_0_ = false; written_1_ = false;",
                 "registers_fenced(written_0_, 16); registers_fenced(written_1_, 16); { f32",
                 "group_0_ = group_; group_1_ = group_;",
                 "wgmma_commit(); group_++;",
                 "under_way(group_1_, ended_, 18); v_r1 =",
                 "wgmma_wait(0); if (group_ > 1 + ended_) ended_ = group_ - 1;",
                 "under_way(group_0_, ended_, 20); v_f32 ="):
        check(f"of a product: {text}", text in code)
    check("registers of no product are not looked at",
          "under_way" not in code_of("add.f32 %f1, %f2, %f3;"))


def main():
    """Runs all checks."""
    for run in (check_refused, check_scopes, check_statements, check_module, check_forms,
                check_operands, check_products):
        run()
    failed = results.count(False)
    print(f"{len(results) - failed} passed, {failed} failed")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
