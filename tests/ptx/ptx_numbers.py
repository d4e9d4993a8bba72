"""What instructions of PTX that compute are in C++, by the text of the PTX ISA.

The functions that the C++ calls are in ptx_values.h.
"""

from ptx_forms import form
from ptx_module import SIZE, Unknown
from ptx_registers import value_type

COMPARE = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
LOGIC = {"and": "&", "or": "|", "xor": "^"}
INTEGER = "(?P<t>[sub](?:16|32|64))"


@form(r"mov\.(?P<t>pred|[ub](?:16|32|64)|f32|f64)")
def mov(o, t):
    """Also between a register and a vector of its parts"""
    to, source = o.vector(0), o.vector(1)
    if len(to) == len(source) == 1:
        return o.put(0, t, o.value(1, t))
    part = f"u{SIZE[t] * 8 // max(len(to), len(source))}"
    if len(to) > 1:
        return (f"{{ const auto part_ = parts<{part}, {len(to)}>({o.value(1, t)}); "
                f"{o.put_each(0, part, 'part_.at')} }}")
    return o.put(0, t, f"whole<{value_type(t)}, {part}>({{ {{ {o.values(1, part)} }} }})")


@form(r"(?P<op>add|sub)\.(?P<t>[su](?:16|32|64)|f32|f64|rn\.f32|rn\.f64)")
def add_sub(o, op, t):
    """Wraps around; rounds to nearest."""
    t = t[-3:]
    sign = "+" if op == "add" else "-"
    return o.put(0, t, f"({value_type(t)})({o.value(1, t)} {sign} {o.value(2, t)})")


@form(r"(?P<op>add|sub)\.rz\.f32")
def add_towards_zero(o, op):
    """Rounds towards zero."""
    second = o.value(2, "f32")
    return o.put(0, "f32", f"add_rz({o.value(1, 'f32')}, {'-' * (op == 'sub')}{second})")


@form(r"(?P<op>addc?|subc?)(?P<out>\.cc)?\.u32")
def with_carry(o, op, out):
    """The carry is a variable of the function: carry."""
    into = "carry" if op.endswith("c") else "0"
    to = ", &carry" if out else ""
    return o.put(0, "u32", f"{op[:3]}_carry({o.value(1, 'u32')}, {o.value(2, 'u32')}, "
                           f"{into}{to})")


@form(r"(?P<op>madc?)\.(?P<half>lo|hi)(?P<out>\.cc)?\.u32")
def mad_carry(o, op, half, out):
    """The lower or upper half of a product, and a third number, with carries"""
    into = "carry" if op == "madc" else "0"
    to = ", &carry" if out else ""
    product = f"(u64){o.value(1, 'u32')} * {o.value(2, 'u32')}"
    product = f"(u32)({product})" if half == "lo" else f"(u32)(({product}) >> 32)"
    return o.put(0, "u32", f"add_carry({product}, {o.value(3, 'u32')}, {into}{to})")


@form(r"mul\.(?P<t>f32|f64|rn\.f32|rn\.f64|lo\.[su](?:16|32|64))")
def mul(o, t):
    """The lower half of a product, or a product of floating-point numbers"""
    t = t[-3:]
    return o.put(0, t, f"product<{value_type(t)}>({o.value(1, t)}, {o.value(2, t)})")


@form(r"mul\.hi\.u32")
def mul_hi(o):
    """The upper half"""
    return o.put(0, "u32", f"(u32)((u64){o.value(1, 'u32')} * {o.value(2, 'u32')} >> 32)")


@form(r"(?P<op>mul|mad)\.wide\.(?P<t>[su](?:16|32))")
def wide(o, op, t):
    """The whole product"""
    w = t[0] + str(int(t[1:]) * 2)
    product = f"({w})(({w}){o.value(1, t)} * ({w}){o.value(2, t)}"
    return o.put(0, w, product + (f" + {o.value(3, w)})" if op == "mad" else ")"))


@form(r"mad\.lo\.(?P<t>s32|s64|u64)")
def mad(o, t):
    """The lower half of a product, and a third number"""
    return o.put(0, t, f"({t})(product<{t}>({o.value(1, t)}, {o.value(2, t)}) + "
                       f"{o.value(3, t)})")


@form(r"fma\.(?P<how>rn|rm)\.(?P<t>f32|f64)")
def fma(o, how, t):
    """Rounded once: to nearest, or down"""
    if how == "rm" and t == "f64":
        raise Unknown("fma.rm.f64")
    name = "fma_rm" if how == "rm" else "fmaf" if t == "f32" else "fma"
    return o.put(0, t, f"{name}({o.value(1, t)}, {o.value(2, t)}, {o.value(3, t)})")


@form(r"(?P<op>div|rem)\.(?P<t>[su](?:32|64)|rn\.f32|rn\.f64)")
def div(o, op, t):
    """Whole numbers, or floating-point ones, rounded to nearest"""
    t = t[-3:]
    if t[0] == "f" and op == "div":
        return o.put(0, t, f"{o.value(1, t)} / {o.value(2, t)}")
    if t[0] == "f":
        raise Unknown(op + "." + t)
    return o.put(0, t, f"{'quotient' if op == 'div' else 'remainder_of'}<{t}>({o.value(1, t)}, "
                       f"{o.value(2, t)})")


@form(r"(?P<op>min|max)\.(?P<t>[su](?:32|64)|f32)")
def min_max(o, op, t):
    """Of a NaN and a number: the number"""
    name = f"f{op}imum" if t == "f32" else f"{op}imum<{t}>"
    return o.put(0, t, f"{name}({o.value(1, t)}, {o.value(2, t)})")


@form(r"(?P<op>add\.rn|mul\.rn|max)\.f16x2")
def of_pairs(o, op):
    """Two numbers of 16 bits"""
    return o.put(0, "u32", f"{op[:3]}_f16x2({o.value(1, 'u32')}, {o.value(2, 'u32')})")


@form(r"(?P<op>abs|neg)\.(?P<t>s32|s64|f32|f64)")
def sign(o, op, t):
    """A NaN stays one."""
    x = o.value(1, t)
    if op == "neg":
        return o.put(0, t, f"({t})-{x}")
    return o.put(0, t, f"({t})fabs({x})" if t[0] == "f" else f"({t})({x} < 0 ? -{x} : {x})")


@form(r"not\.(?P<t>pred|b16|b32|b64)")
def not_(o, t):
    """Bits"""
    x = o.value(1, t)
    return o.put(0, t, f"!{x}" if t == "pred" else f"({value_type(t)})~{x}")


@form(r"(?P<op>and|or|xor)\.(?P<t>pred|b16|b32|b64)")
def logic(o, op, t):
    """Bits"""
    kind = "bool" if t == "pred" else value_type(t)
    return o.put(0, t, f"({kind})({o.value(1, t)} {LOGIC[op]} {o.value(2, t)})")


@form(r"lop3\.b32")
def lop3(o):
    """Bits of three numbers by a table: bit 4a + 2b + c of it"""
    table = int(o.all[4], 0)
    given = [o.value(i, "u32") for i in (1, 2, 3)]
    terms = [" & ".join(("" if i >> 2 - n & 1 else "~") + x for n, x in enumerate(given))
             for i in range(8) if table >> i & 1]
    return o.put(0, "u32", "(u32)(" + (" | ".join(f"({t})" for t in terms) or "0") + ")")


@form(r"(?P<op>shl|shr)\." + INTEGER)
def shift(o, op, t):
    """By more than there are bits: all of them"""
    return o.put(0, t, f"{op}<{value_type(t)}>({o.value(1, t)}, {o.value(2, 'u32')})")


@form(r"setp\.(?P<how>eq|ne|lt|le|gt|ge)\." + INTEGER)
def compare_integers(o, how, t):
    """Whole numbers"""
    return o.put(0, "pred", f"{o.value(1, t)} {COMPARE[how]} {o.value(2, t)}")


@form(r"setp\.(?P<how>eq|ne|lt|le|gt|ge|equ|neu|ltu|leu|gtu|geu|nan|num)\.(?P<t>f32|f64)")
def compare_floats(o, how, t):
    """False for a NaN, or, with a u behind, true"""
    x, y = o.value(1, t), o.value(2, t)
    ordered = f"numbers({x}, {y})"
    if how in ("nan", "num"):
        return o.put(0, "pred", ("!" if how == "nan" else "") + ordered)
    compared = f"{x} {COMPARE[how[:2]]} {y}"
    return o.put(0, "pred", f"!{ordered} || {compared}" if how.endswith("u") else
                 f"{ordered} && {compared}")


@form(r"selp\.(?P<t>[subf](?:16|32|64))")
def selp(o, t):
    """One of two"""
    return o.put(0, t, f"{o.value(3, 'pred')} ? {o.value(1, t)} : {o.value(2, t)}")


@form(r"copysign\.f32")
def copysign(o):
    """The sign of the first, the value of the second"""
    return o.put(0, "f32", f"copysignf({o.value(2, 'f32')}, {o.value(1, 'f32')})")


@form(r"rcp\.(?:rn\.(?P<t>f32|f64)|approx\.ftz\.(?P<near>f32|f64))")
def rcp(o, t, near):
    """1 / x"""
    if near:
        return o.put(0, near, f"rcp_ftz({o.value(1, near)})")
    return o.put(0, t, f"1 / {o.value(1, t)}")


@form(r"sqrt\.rn\.(?P<t>f32|f64)")
def sqrt(o, t):
    """Rounded to nearest"""
    return o.put(0, t, f"{'sqrtf' if t == 'f32' else 'sqrt'}({o.value(1, t)})")


@form(r"ex2\.approx(?P<ftz>\.ftz)?\.f32")
def ex2(o, ftz):
    """2^x"""
    return o.put(0, "f32", f"ex2{'_ftz' if ftz else ''}({o.value(1, 'f32')})")


@form(r"prmt\.b32")
def prmt(o):
    """Bytes of two registers"""
    return o.put(0, "b32", f"prmt({', '.join(o.value(i, 'u32') for i in (1, 2, 3))})")


@form(r"bfi\.(?P<t>b32|b64)")
def bfi(o, t):
    """Bits of the first among those of the second"""
    return o.put(0, t, f"bfi<{value_type(t)}>({o.value(1, t)}, {o.value(2, t)}, "
                       f"{o.value(3, 'u32')}, {o.value(4, 'u32')})")


@form(r"(?P<op>popc|clz|brev)\.(?P<t>b32|b64)")
def bits(o, op, t):
    """How many bits, how many zeros before the first, bits in reverse"""
    to = t if op == "brev" else "u32"
    return o.put(0, to, f"{op}<{value_type(t)}>({o.value(1, t)})")


@form(r"bfind\.shiftamt\.u32")
def bfind(o):
    """How far the highest bit is from the top"""
    return o.put(0, "u32", f"bfind_shiftamt({o.value(1, 'u32')})")


@form(r"cvt\.(?P<to>[su](?:16|32|64))\.(?P<source>[su](?:8|16|32|64))")
def cvt_integers(o, to, source):
    """Cut off, or widened by the source's sign"""
    return o.put(0, to, f"({to})({o.value(1, source)})")


@form(r"cvt\.rn\.(?P<to>f32|f64)\.(?P<source>[su](?:16|32|64))")
def cvt_to_float(o, to, source):
    """Rounded to nearest"""
    return o.put(0, to, f"({to})({o.value(1, source)})")


@form(r"cvt\.(?P<how>rni|rzi)\.(?P<to>[su](?:32|64)|f32|f64)\.(?P<source>f32|f64)")
def cvt_to_integer(o, how, to, source):
    """To a whole number; beyond the type's range it saturates, and a NaN is 0."""
    name = ("nearbyint" if how == "rni" else "trunc") + ("f" if source == "f32" else "")
    x = f"{name}({o.value(1, source)})"
    if to[0] == "f" and to != source:
        raise Unknown(f"cvt.{how}.{to}.{source}")
    return o.put(0, to, x if to[0] == "f" else f"to_integer<{to}>({x})")


@form(r"cvt\.(?P<how>f64\.f32|rn\.f32\.f64|sat\.f32\.f32|f32\.f16|rn\.f16\.f32)")
def cvt_floats(o, how):
    """.sat: to 0 .. 1"""
    to, source, function = {
        "f64.f32": ("f64", "f32", "(f64)"), "rn.f32.f64": ("f32", "f64", "(f32)"),
        "sat.f32.f32": ("f32", "f32", "saturated"), "f32.f16": ("f32", "u16", "half_to_f32"),
        "rn.f16.f32": ("u16", "f32", "f32_to_half")}[how]
    return o.put(0, to, f"{function}({o.value(1, source)})")


@form(r"cvt\.rn\.(?P<to>bf16|f16)x2\.f32")
def cvt_pair(o, to):
    """The first operand goes to the upper half."""
    return o.put(0, "u32", f"cvt_{to}x2({o.value(1, 'f32')}, {o.value(2, 'f32')})")


@form(r"cvt\.rn\.f16x2\.e4m3x2")
def cvt_from_e4m3(o):
    """Two numbers of 8 bits"""
    return o.put(0, "u32", f"e4m3x2_to_f16x2({o.value(1, 'u16')})")
