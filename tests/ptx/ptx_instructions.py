"""What instructions of PTX for memory, warps, blocks and control are in C++, by the PTX ISA.

The functions that the C++ calls are in ptx_runtime.h and ptx_hopper.h.
"""

import re

from ptx_forms import form
from ptx_module import SIZE, Unknown
from ptx_registers import value_type

ATOMIC = {"add": "old + x", "or": "old | x", "min": "old < x ? old : x", "max": "old < x ? x : old"}

# ---- memory ----

SPACE = r"(?:\.(?P<space>param|global|shared|local))?"
ELEMENTS = r"(?:\.v(?P<n>2|4))?\.(?P<t>[subf](?:8|16|32|64))"


def in_param(o, index, size):
    """The C++ pointer to a parameter, or an argument of a call; one in a register is checked
    when it is used."""
    address, name, offset = o.address(index)
    memory = o.registers.memory.get(name)
    if name.startswith("%") and o.registers.function.is_kernel:
        return f"param_at(param, {o.registers.param_bytes}, {address}, {size}, {o.line})"
    if memory is None or memory[0] != "param":
        raise Unknown("parameter " + name)
    if offset < 0 or offset + size > memory[2]:
        raise Unknown(f"{size} bytes at {offset} of parameter {name}")
    return f"{memory[1]} + {offset}"


def in_local(o, address):
    """The arguments that say where local memory is: a function has one array of it."""
    arrays = [x for x in o.registers.memory.values() if x[0] == "local"]
    if len(arrays) != 1:
        raise Unknown("local memory of several arrays")
    return f"{arrays[0][1]}, {arrays[0][2]}, {address}"


@form(r"ld(?P<weak>\.volatile)?" + SPACE + r"(?P<how>\.nc|\.cg|\.nc\.L1::no_allocate)?" + ELEMENTS)
def load(o, weak, space, how, n, t):
    """.nc: like a plain one; .cg: of emulator::load_l2()"""
    kind, n = value_type(t), int(n or 1)
    address = o.address(1)[0]
    values = f"{kind}, {n}"
    if weak and space not in (None, "global", "shared"):
        raise Unknown("ld.volatile." + space)
    if how == ".cg":
        if space != "global" or n > 1 or t != "u32":
            raise Unknown("ld.cg of another type")
        return o.put(0, t, f"load_l2({address}, {o.line})")
    if space == "param":
        loaded = f"load_param<{values}>({in_param(o, 1, SIZE[t] * n)})"
    elif space == "local":
        loaded = f"load_local<{values}>({in_local(o, address)}, {o.line})"
    else:
        loaded = f"load_{space or 'global'}<{values}>({address}, {o.line})"
    return f"{{ const auto got_ = {loaded}; {o.put_each(0, t, 'got_.at')} }}"


@form(r"st(?P<weak>\.volatile)?" + SPACE + ELEMENTS)
def store(o, weak, space, n, t):
    """The other way"""
    kind, n = value_type(t), int(n or 1)
    address = o.address(0)[0]
    values = f"vec<{kind}, {n}>{{ {{ {o.values(1, t)} }} }}"
    if weak and space != "global":
        raise Unknown("st.volatile of another memory")
    if space == "param":
        return f"store_param({in_param(o, 0, SIZE[t] * n)}, {values});"
    if space == "local":
        return f"store_local({in_local(o, address)}, {values}, {o.line});"
    return f"store_{space or 'global'}({address}, {values}, {o.line});"


@form(r"cvta\.to\.global\.u64")
def cvta(o):
    """Addresses of device memory are the same in both spaces."""
    return o.put(0, "u64", o.value(1, "u64"))


@form(r"atom\.(?P<space>global|shared)\.(?P<op>add|min|max|or)\.(?:u32|b32)")
def atom(o, space, op):
    """What was there before"""
    return o.put(0, "u32", f"atomic_{space}({o.address(1)[0]}, [](u32 old, u32 x) -> u32 "
                           f"{{ return {ATOMIC[op]}; }}, {o.value(2, 'u32')}, {o.line})")


@form(r"prefetch\.global\.L2")
def prefetch(o):
    """The address must be one of the device."""
    return f"prefetch({o.address(0)[0]});"


@form(r"cp\.async\.cg\.shared\.global")
def cp_async(o):
    """16 bytes, of which so many are copied, and the others zeros"""
    if o.all[2] != "16" or len(o.all) != 4:
        raise Unknown(f"cp.async of {o.all[2:]}")
    return f"cp_async({o.address(0)[0]}, {o.address(1)[0]}, {o.value(3, 'u32')}, {o.line});"


@form(r"cp\.async\.commit_group")
def cp_commit(_):
    """The copies since the last are a group."""
    return "cp_commit();"


@form(r"cp\.async\.wait_group")
def cp_wait(o):
    """All groups but the last n"""
    return f"cp_wait({int(o.all[0])});"


# ---- warps and blocks ----

@form(r"shfl\.sync\.(?P<how>idx|bfly|up|down)\.b32")
def shfl(o, how):
    """d|p: also whether the other lane is in range"""
    to = o.all[0].split("|")
    values = ", ".join(o.value(i, "u32") for i in (1, 2, 3, 4))
    flag = o.registers.put(to[1], "pred", "in_range_") if len(to) > 1 else ""
    return (f"{{ bool in_range_; const u32 got_ = shfl({how.upper()}, {values}, &in_range_, "
            f"{o.line}); {o.registers.put(to[0], 'u32', 'got_')} {flag} }}")


@form(r"vote\.sync\.(?:(?P<how>any|all)\.pred|ballot\.b32)")
def vote(o, how):
    """Which lanes"""
    lanes = f"ballot({o.value(1, 'pred')}, {o.value(2, 'u32')}, {o.line})"
    if how is None:
        return o.put(0, "u32", lanes)
    return o.put(0, "pred", lanes + (" != 0" if how == "any" else f" == {o.value(2, 'u32')}"))


@form(r"redux\.sync\.add\.(?P<t>u32|s32)")
def redux(o, t):
    """The sum over lanes"""
    return o.put(0, t, f"redux_add({o.value(1, 'u32')}, {o.value(2, 'u32')}, {o.line})")


@form(r"bar\.warp\.sync")
def bar_warp(o):
    """Lanes of a mask; orders their accesses to memory"""
    return f"warp_sync({o.value(0, 'u32')});"


@form(r"bar\.sync")
def bar(o):
    """All threads of the block, or so many at a numbered barrier; orders accesses to memory"""
    if len(o.all) == 2:
        return f"barrier({o.value(0, 'u32')}, {o.value(1, 'u32')}, true, {o.line});"
    if o.all != ["0"]:
        raise Unknown(f"bar.sync {', '.join(o.all)}")
    return "block_sync();"


@form(r"bar\.arrive")
def bar_arrive(o):
    """The same, without waiting"""
    return f"barrier({o.value(0, 'u32')}, {o.value(1, 'u32')}, false, {o.line});"


@form(r"mbarrier\.init\.shared::cta\.b64")
def mbarrier_init(o):
    """How many arrive in a phase"""
    return f"mbarrier_init({o.address(0)[0]}, {o.value(1, 'u32')}, {o.line});"


@form(r"mbarrier\.arrive\.shared::cta\.b64")
def mbarrier_arrive(o):
    """One of them"""
    if o.all[0] != "_" or len(o.all) != 2:
        raise Unknown(f"mbarrier.arrive {', '.join(o.all)}")
    return f"mbarrier_arrive({o.address(1)[0]}, {o.line});"


@form(r"mbarrier\.try_wait\.parity\.shared::cta\.b64")
def mbarrier_wait(o):
    """Until the phase has ended"""
    return o.put(0, "pred", f"mbarrier_wait({o.address(1)[0]}, {o.value(2, 'u32')}, {o.line})")


@form(r"setmaxnreg\.(?:inc|dec)\.sync\.aligned\.u32|wgmma\.fence\.sync\.aligned")
def nothing_to_do(_):
    """How many registers a warp has: not modelled; of the fence see ptx_products.py"""
    return ";"


@form(r"fence\.proxy\.async\.shared::cta")
def fence_proxy(_):
    """Between writes to shared memory and wgmma"""
    return "fence_proxy();"


@form(r"wgmma\.(?P<what>commit|wait)_group\.sync\.aligned")
def wgmma_groups(o, what):
    """The products since the last are a group; all groups but the last n have ended."""
    return "wgmma_commit();" if what == "commit" else f"wgmma_wait({int(o.all[0])});"


@form(r"wgmma\.mma_async\.sync\.aligned\.m64n(?P<n>64|128|256)k16\.f32\."
      r"(?P<t>bf16|f16)\.(?P=t)")
def wgmma(o, n, t):
    """d = a b, or, by a predicate, d + a b; a in registers or by a descriptor"""
    in_registers = o.all[1].startswith("{")
    scales, turned = o.all[4:6], o.all[6:]
    if scales != ["1", "1"] or len(turned) != (1 if in_registers else 2) or (
            not in_registers and turned[0] != "0") or turned[-1] not in ("0", "1"):
        raise Unknown(f"wgmma with {o.all[3:]}")
    a = f"{{ {o.values(1, 'u32')} }}" if in_registers else "{ 0 }"
    return (f"{{ f32 d_[] = {{ {o.values(0, 'f32')} }}; const u32 a_[4] = {a}; "
            f"const struct product p_ = {{ {n}, {'a_' if in_registers else 'NULL'}, "
            f"{'0' if in_registers else o.value(1, 'u64')}, {o.value(2, 'u64')}, "
            f"{o.value(3, 'pred')}, {'true' if turned[-1] == '1' else 'false'}, "
            f"{'true' if t == 'bf16' else 'false'} }}; wgmma(d_, &p_, {o.line}); "
            f"{o.put_each(0, 'f32', 'd_')} }}")


@form(r"bar\.red\.or\.pred")
def bar_or(o):
    """The same, and whether any thread's is true"""
    if o.all[1] != "0" or len(o.all) != 3:
        raise Unknown(f"bar.red {', '.join(o.all)}")
    return o.put(0, "pred", f"block_sync_or({o.value(2, 'pred')})")


@form(r"ldmatrix\.sync\.aligned\.m8n8\.x4(?P<trans>\.trans)?\.shared\.b16")
def ldmatrix(o, trans):
    """Four matrices of 8 x 8"""
    return (f"{{ u32 got_[4]; ldmatrix_x4(got_, {o.address(1)[0]}, "
            f"{'true' if trans else 'false'}, {o.line}); {o.put_each(0, 'u32', 'got_')} }}")


@form(r"movmatrix\.sync\.aligned\.m8n8\.trans\.b16")
def movmatrix(o):
    """A matrix of 8 x 8, transposed"""
    return o.put(0, "u32", f"movmatrix_trans({o.value(1, 'u32')}, {o.line})")


@form(r"mma\.sync\.aligned\.m16n8k16\.row\.col\.f32\.(?P<t>bf16|f16)\.(?P=t)\.f32")
def mma(o, t):
    """d = a b + c"""
    return (f"{{ f32 d_[4]; const u32 a_[4] = {{ {o.values(1, 'u32')} }}, "
            f"b_[2] = {{ {o.values(2, 'u32')} }}; const f32 c_[4] = {{ {o.values(3, 'f32')} }}; "
            f"mma(d_, a_, b_, c_, {'true' if t == 'bf16' else 'false'}, {o.line}); "
            f"{o.put_each(0, 'f32', 'd_')} }}")


@form(r"mma\.sync\.aligned\.m16n8k32\.row\.col\.s32\.u8\.u8\.s32")
def mma_u8(o):
    """The same of unsigned bytes"""
    return (f"{{ u32 d_[4]; const u32 a_[4] = {{ {o.values(1, 'u32')} }}, "
            f"b_[2] = {{ {o.values(2, 'u32')} }}, c_[4] = {{ {o.values(3, 'u32')} }}; "
            f"mma_u8(d_, a_, b_, c_, {o.line}); {o.put_each(0, 'u32', 'd_')} }}")


# ---- control ----

@form(r"bra(?:\.uni)?")
def bra(o):
    """Labels are those of C++."""
    return f"goto {o.registers.target(o.all[0])};"


@form(r"ret|exit")
def ret(_):
    """The thread, or the called function, ends."""
    return "return;"


@form(r"call\.uni")
def call(o):
    """(results), function, (arguments): arrays of this function"""
    arrays = [o.registers.memory[x][1] for i in (0, 2)
              for x in re.findall(r"[\w$]+", o.all[i])]
    return f"{o.all[1]}({', '.join(arrays)});"


@form(r"griddepcontrol\.(?P<what>wait|launch_dependents)")
def griddepcontrol(_, what):
    """Programmatic dependent launch: the emulator protects device memory before the wait."""
    return "emulator::pdl_wait();" if what == "wait" else ";"
