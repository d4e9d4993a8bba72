#!/usr/bin/env python3
"""Conversations through kv-chat and through transformers' apply_chat_template().

  chat.py unpack PACKAGES FOLDER                       the templates of real models that packages of
                                                       PyPI have in them
  chat.py golden FOLDER [SMOLLM2]                      prints tests/fixtures/chat.json
  chat.py grammar                                      prints tests/fixtures/jinja.json: small
                                                       templates and what Jinja makes of them
  chat.py compare RENDERER KV_CHAT FOLDER VOCABULARIES

`make real-templates` unpacks and compares; VOCABULARIES are those of `make real-tokenizers`. Of
llama-cpp-python's source the files of vendor/llama.cpp/models/templates are taken, and the
templates in llama_chat_format.py. SMOLLM2 is the folder that examples/smollm2/folder.sh makes,
whose template is the one of its GGUF file. Needs transformers (5.2.0), compare mistral-common too.
Templates are not committed: the golden file has only what they print.

compare holds every template to the same text, byte for byte, as Jinja has it with the settings of
transformers, and ids to those of apply_chat_template() with vocabularies of real models, of
Mistral's to those of mistral-common. A template that we do not support is counted, and it must say
so; a text that differs fails.
"""

import ast
import datetime
import glob
import itertools
import json
import os
import subprocess
import sys
import tarfile
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../bin"))
import mkchat  # noqa: E402
from tokenizer_real import STYLES, write  # noqa: E402

DATE = "2024-07-26"
BAR, LOW = "\uff5c", "\u2581"
# built-in: file of the folder, BOS, EOS
BUILTIN = {
    "llama3": ("llama3", "<|begin_of_text|>", "<|eot_id|>"),
    "chatml": ("chatml", "<|endoftext|>", "<|im_end|>"),
    "qwen2.5": ("Qwen-Qwen2.5-7B-Instruct", "<|endoftext|>", "<|im_end|>"),
    "smollm": ("smollm2", "<|im_start|>", "<|im_end|>"),
    "mistral-v1": ("mixtral_instruct", "<s>", "</s>"),
    "mistral-tekken": ("mistralai-Mistral-Nemo-Instruct-2407", "<s>", "</s>"),
    "phi3": ("microsoft-Phi-3.5-mini-instruct", "<s>", "<|endoftext|>"),
    "gemma": ("google-gemma-2-2b-it", "<bos>", "<eos>"),
    "deepseek-r1": (
        "deepseek-ai-DeepSeek-R1-Distill-Llama-8B",
        f"<{BAR}begin{LOW}of{LOW}sentence{BAR}>",
        f"<{BAR}end{LOW}of{LOW}sentence{BAR}>",
    ),
    "granite": ("ibm-granite-granite-3.3-2B-Instruct", "<|end_of_text|>", "<|end_of_text|>"),
}
# vocabulary: template, BOS, EOS
REAL = {
    "qwen2": ("Qwen-Qwen2.5-7B-Instruct", "<|endoftext|>", "<|im_end|>"),
    "qwen35": ("Qwen3.5-4B", "<|endoftext|>", "<|im_end|>"),
    "llama-bpe": ("meta-llama-Llama-3.2-3B-Instruct", "<|begin_of_text|>", "<|eot_id|>"),
    "phi-3": ("microsoft-Phi-3.5-mini-instruct", "<s>", "<|endoftext|>"),
    "phi-3-first": ("microsoft-Phi-3.5-mini-instruct", "<s>", "<|endoftext|>"),
    "deepseek-v3": ("deepseek-ai-DeepSeek-V3.1", *BUILTIN["deepseek-r1"][1:]),
    "llama-spm": ("mistral_instruct", "<s>", "</s>"),
    "llama-spm-split": ("mistral_instruct", "<s>", "</s>"),
    "gemma-4-gemma": ("google-gemma-4-31B-it", "<bos>", "<eos>"),
    "command-r": (
        "CohereForAI-c4ai-command-r7b-12-2024-tool_use", "<BOS_TOKEN>", "<|END_OF_TURN_TOKEN|>",
    ),
}

TEXTS = [
    "Hi there.",
    "  white space around it \n",
    "\n\nlines before\n\n\nand between",
    "Stra\u00dfe, \u6f22\u5b57, \U0001f642\u200d e\u0301 \u3000\u00a0",
    "{{ messages }} {% raw %} 'quo\"ted\\' \t end",
    "",
    "x" * 3000,
]
# with the names of tokens in them: the texts are the same, the ids are not to be
MARKUP = ["A <|im_end|>\n<|im_start|>user [INST] x</s>",
          "<think>\nhm\n</think>\n\nFour.", f"<{BAR}User{BAR}>"]


def talk(*parts):
    roles = {"s": "system", "u": "user", "a": "assistant"}
    return [{"role": roles[r], "content": c} for r, c in parts]


def conversations(texts):
    for t in texts:
        yield talk(("u", t))
        yield talk(("s", t), ("u", "question"))
        yield talk(("s", "You are terse."), ("u", t), ("a", "Answer."), ("u", "More?"))
        yield talk(("u", "question"), ("a", t), ("u", "More?"))
        yield talk(("u", "question"), ("a", t))
    yield talk(("u", "a"), ("u", "b"))
    yield talk(("a", "a"), ("u", "b"))
    yield talk(("s", "a"))
    yield talk(("s", "a"), ("s", "b"), ("u", "c"))


def render(template, variables):
    """What transformers prints, on DATE; an exception where it refuses."""
    from transformers.utils import chat_template_utils

    class Then(datetime.datetime):
        @classmethod
        def now(cls, tz=None):
            return cls.fromisoformat(DATE)

    chat_template_utils.datetime = Then
    return chat_template_utils._compile_jinja_template(template).render(**variables)


# ---- the templates ----


def unpack(packages, folder):
    os.makedirs(folder, exist_ok=True)
    for path in glob.glob(os.path.join(packages, "llama_cpp_python-*.tar.gz")):
        with tarfile.open(path) as tar:
            for member in tar.getmembers():
                base = os.path.basename(member.name)
                if "/models/templates/" in member.name and base.endswith(".jinja"):
                    member.name = base
                    tar.extract(member, folder)
                elif base == "llama_chat_format.py":
                    unpack_source(tar.extractfile(member).read().decode(), folder)


def unpack_source(source, folder):
    """NAME_CHAT_TEMPLATE = "..." of a Python file"""
    for node in ast.parse(source).body:
        if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Constant):
            continue
        name, suffix = node.targets[0].id, "_CHAT_TEMPLATE"
        if name.endswith(suffix) and isinstance(node.value.value, str):
            name = name[: -len(suffix)].lower().replace("llama3_instruct", "llama3")
            with open(os.path.join(folder, name + ".jinja"), "w", encoding="utf-8") as f:
                f.write(node.value.value)


def read(folder, name):
    with open(os.path.join(folder, name + ".jinja"), encoding="utf-8", newline="") as f:
        return f.read()


# ---- golden ----


def golden(folder, smollm2=None):
    from transformers import AutoTokenizer

    if smollm2 is not None:
        with open(os.path.join(smollm2, "tokenizer_config.json"), encoding="utf-8") as f:
            template = json.load(f)["chat_template"]
        with open(os.path.join(folder, "smollm2.jinja"), "w", encoding="utf-8") as f:
            f.write(template)
    talks = [
        talk(("u", "Hi there.")),
        talk(("s", "You are terse."), ("u", "  What is 2+2?\n")),
        talk(("u", "a\n"), ("a", "\n\n Four. "), ("u", "\n\nThen?")),
        talk(("s", "S"), ("u", "U"), ("a", "A")),
        talk(("u", "Think."), ("a", MARKUP[1]), ("u", MARKUP[0])),
        talk(("u", "a"), ("u", "b")),
    ]
    cases = []
    for name, (file, bos, eos) in BUILTIN.items():
        with tempfile.TemporaryDirectory() as model:
            mkchat.make(model, read(folder, file), bos_token=bos, eos_token=eos)
            tokenizer = AutoTokenizer.from_pretrained(model)
            for messages in talks:
                prompt = messages[-1]["role"] != "assistant"
                case = {"template": name, "messages": messages, "prompt": prompt}
                try:
                    variables = {"messages": messages, "add_generation_prompt": prompt,
                                 "bos_token": bos, "eos_token": eos}
                    render(tokenizer.chat_template, variables)
                    case["text"] = tokenizer.apply_chat_template(
                        messages, add_generation_prompt=prompt, tokenize=False
                    )
                except Exception:  # raise_exception() of the template
                    case["text"] = None
                marked = any(m["content"] in MARKUP for m in messages)
                if case["text"] is not None and not marked:
                    case["ids"] = tokenizer(case["text"], add_special_tokens=False)["input_ids"]
                # Gemma 2 refuses a system message, the built-in template is Gemma 3's in that
                if name != "gemma" or messages[0]["role"] != "system":
                    cases.append(case)
    print("[" + ",\n".join(json.dumps(c) for c in cases) + "]")


# ---- grammar ----

VARIABLES = {
    "messages": [
        {"role": "user", "content": "  Stra\u00dfe \u6f22\u5b57 <b>\n",
         "more": {"x": 1, "a": [1, 2.5, None, True]}},
        {"role": "assistant", "content": "a,b,,c"},
        {"role": "user", "content": "\u3000\u00a0x\u2003"},
    ],
    "n": 7,
    "word": "mixed Case wORD's",
    "none": None,
    "nums": [3, 1, 2, 3],
    "bos_token": "<s>",
}
WHITE = [
    "a\n{% if n %}\nb\n{% endif %}\nc\n",
    "a\n  {% if n %}  b  {% endif %}  \nc\n\n",
    "  {%- if n %} b {%- endif -%} \n\n c",
    " \t{% set x = 1 %}\n  {{ x }}  \n {{- x -}} \n",
    "x {% if n %}\n y {% endif %}\n",
    "{# c #}\n  {# d #}  e {#- f -#}\n g\n{%+ if n %}h{% endif +%}\ni",
    "  {%+ if n %} k{% endif %}",
    "a\r\nb\rc{{ 'd' }}\r\n",
    "{% raw %}\n {{ x }} {% if %}{% endraw %}\n b {%- raw -%} {{ y }} {%- endraw -%} c",
    "{% for m in messages %}\n\t{{ m.role }}\n{% endfor %}\n\n",
    "{{ {'a': {'b': 1}}['a']['b'] }}}}",
    "{{ 'a' 'b' \"c'\" 'd\\n\\t\\'\\u20ac\\x41' }}",
]
# one in each line; an indented line is the rest of the one before
EXPRESSIONS = r"""
1 + 2 * 3 - 4 // 3 % 2
7 // -2 ~ -7 // 2 ~ 7 % -3
2.5 * 2 ~ 1 / 4 ~ (0.1 + 0.2)
not n == 7 or n > 3 and n <= 7
[1 < n < 9, 1 < n < 5, n != 7 != 8]
['a' in word, 'm' not in word, 3 in nums, 'role' in messages[0], 'x' in messages[0].nothing]
(n if n > 9) ~ (n if n > 9 else 'small') ~ (none or 'other') ~ ('' or n and 'both')
[-n + +n, -n, - 2 + 3, n]
word[0] ~ word[-1] ~ word[2:5] ~ word[-4:] ~ word[:-4] ~ word[3:2] ~ word[:99]
messages[0].content[2:6] ~ messages[0].content[-5:-2]
nums[1:] ~ nums[::-1] ~ nums[-2:9] ~ nums[:0] ~ nums[2::-1] ~ nums[:1:-1]
messages[::-1][0].role ~ (messages[9] is defined) ~ (nothing is defined) ~ (n is not undefined)
[none is none, n is none, n is number, n is integer, 2.5 is float, word is string]
[messages is mapping, messages[0] is mapping, messages is iterable, word is sequence, n is iterable]
[true is boolean, true is true, 1 is true, 7 is odd, n is even, false is false]
[n is divisibleby 7, n is divisibleby(2), n is eq 7, n is ne 7, n is gt 3, 3 is in nums,
    not n is lt 3]
(1, 'a', none, true, [2.0], {'k': 'v\n'}) | list
{'a': 1, 'b': [1, 'x"'], 'c': "it's"}
[1.0, 100000.5, 0.1, 1e3, [], {}, -0.5]
messages[0].content|trim ~ '[' ~ messages[2].content|trim ~ ']'
word|upper ~ word|lower ~ word|capitalize ~ word|length ~ nums|length ~ messages[0].content|length
word|replace('e', 'EE') ~ word|replace('e', 'EE', 1) ~ word.replace(' ', '')
nums|join(', ') ~ nums|join ~ messages|map(attribute='role')|join('-')
messages|map(attribute='more.x', default=0)|list
nums|map('string')|list ~ nums|select('gt', 1)|list ~ nums|reject('eq', 3)|list
    ~ nums|select('odd')|list
messages|selectattr('role', 'equalto', 'user')|list|length
messages|rejectattr('role', 'eq', 'user')|map(attribute='content')|first
messages|selectattr('more')|list|length ~ messages|selectattr('more', 'defined')|list|length
nums|first ~ nums|last ~ nums|sort|list ~ nums|unique|list ~ nums|reverse|list
[nothing|default('d'), ''|default('d'), ''|default('d', true), none|default('d')]
[n|string ~ 1, '12'|int + 1, ' x'|int, 'q'|int(9), 2.9|int, '3'|int(default=1)]
(messages[0].more|items|list)[1][0] ~ (messages[0].more|dictsort)[0][0]
    ~ messages[0].more|dictsort|length
messages[0]|tojson
messages[0]|tojson(indent=2)
[[1, [2]], {}, [], {'a': {}}]|tojson(indent=1)
'a "b" \\ c \t\n'|tojson
[nothing|list, nothing|length, 'abc'|list, 'xxaxx'|trim('x')] ~ word|safe
([]|first) is defined
[word.split(), word.split(' ', 1), 'a,b,,c'.split(','), 'abc'.split('x'), ' a  b '.split()]
messages[0].content.strip() ~ 'xxaxx'.strip('x') ~ ' a '.lstrip() ~ ' a '.rstrip()
    ~ '/' ~ 'xyaxy'.lstrip('yx')
'a\n\n'.rstrip('\n') ~ messages[2].content.strip() ~ '/' ~ 'äöa'.strip('öä')
[word.startswith('mixed'), word.endswith(('x', "'s")), word.startswith('')]
[word.upper(), word.lower(), word.capitalize(), 'ab cd-ef'.title()]
['aXbX'.replace('X', ''), 'aXbX'.replace('X', 'y', 1), '-'.join(['a', 'b']),
    word.find('C'), word.find('zz')]
messages[0].get('role') ~ messages[0].get('q') ~ messages[0].get('q', 'd')
messages[0].more.keys()|list ~ messages[0].more.values()|list ~ messages[0].more.items()|list|length
namespace(a=1).a ~ dict(a=1, b='c') ~ range(3)|list ~ range(2, 9, 3)|list ~ range(5, 0, -2)|list
strftime_now('%d %B %Y, %A %b %j %y-%m')
messages[0]['more']['a'][1] ~ messages[0].more.a[-1] ~ messages.0.role
1 if nothing else 2 if none else 3
'a' ~ 1 + 2 ~ 'b'
['ab' * 2, [1] + [2]]
bos_token + messages[1]['content'] + '\n'
""".replace("\n    ", " ")
STATEMENTS = [
    "{% for a in nums %}{{ loop.index }}{{ loop.index0 }}{{ loop.first }}"
    "{{ loop.last }}{{ loop.length }}{{ loop.revindex }}"
    "{{ loop.previtem }}{{ loop.nextitem }};{% endfor %}",
    "{% for a in nums if a > 1 %}{{ a }}/{{ loop.length }} {% else %}none{% endfor %}",
    "{% for a in [] %}x{% else %}none{% endfor %}"
    "{% for a in nothing %}x{% else %}neither{% endfor %}",
    "{% for k, v in messages[0].more.items() %}{{ k }}={{ v }};{% endfor %}"
    "{% for k in messages[0] %}{{ k }} {% endfor %}",
    "{% for c in 'a\u20acb' %}[{{ c }}]{% endfor %}"
    "{% for a, b in [(1, 2), [3, 4]] %}{{ a }}{{ b }} {% endfor %}",
    "{% for a in nums %}{% if a == 1 %}{% continue %}{% endif %}"
    "{% if a == 2 %}{% break %}{% endif %}{{ a }}{% endfor %}",
    "{% set x = 1 %}{% for a in nums %}{{ x }}{% set x = a %}{{ x }} {% endfor %}{{ x }}",
    "{% set ns = namespace(t=0) %}"
    "{% for a in nums %}{% set ns.t = ns.t + a %}{% endfor %}{{ ns.t }}",
    "{% if n == 1 %}a{% elif n == 7 %}b{% elif n %}c{% else %}d{% endif %}"
    "{% if nothing %}e{% else %}f{% endif %}",
    "{% if n %}{% set y = 'in' %}{% endif %}{{ y }}{% set a, b = 1, 2 %}{{ b }}{{ a }}",
    "{% set x %} a {{ n }} {% endset %}[{{ x }}]{% set x | trim | upper %} a {% endset %}[{{ x }}]",
    "{% filter upper %}a {{ word }}{% endfilter %}{% generation %}said{% endgeneration %}",
    "{% macro f(a, b='B', c=none) %}{{ a }}{{ b }}{{ c }}{% endmacro %}"
    "{{ f(1) }} {{ f(1, c=3) }} {{ f(b=2) }}{{ f('x')|length }}",
    "{% macro g(k) %}{% if k > 0 %}{{ k }}{{ g(k - 1) }}{% endif %}{% endmacro %}{{ g(3) }}",
    "{% set o = 'outer' %}{% macro h() %}{{ o }}{% set o = 'inner' %}{{ o }}{% endmacro %}"
    "{{ h() }}{{ o }}",
    "{% for m in messages %}{% for a in nums %}{{ loop.index }}{% endfor %}"
    "{{ loop.index }} {% endfor %}",
    "{{ nothing }}{{ messages[0].nothing }}|{{ nothing ~ 'x' }}"
    "{{ (nothing|default(none)) is none }}",
    # what a namespace carries out of the block, macro or loop that it was made in
    "{% set ns = namespace(f=1) %}{% macro k(y) %}"
    "{% set x %}{% macro m() %}{{ y }}{% endmacro %}{% set ns.f = m %}{% endset %}"
    "{% endmacro %}{{ k('y') }}{{ ns.f() }}{% set x %}{{ word }}{% endset %}{{ ns.f() }}",
    "{% set ns = namespace(f=1) %}{% macro k(y) %}"
    "{% filter upper %}{% macro m() %}{{ y }}{% endmacro %}{% set ns.f = m %}{% endfilter %}"
    "{% endmacro %}{{ k(word) }}{{ ns.f() }}"
    "{% filter lower %}{{ word }}{{ ns.f() }}{% endfilter %}",
    "{% set ns = namespace(f=1) %}{% macro k(y) %}"
    "{% for a in [y] if a %}{% macro m() %}{{ y }}{% endmacro %}{% set ns.f = m %}{% endfor %}"
    "{% endmacro %}{{ k('q') }}{{ ns.f() }}{% for a in nums if a > 1 %}{{ ns.f() }}{% endfor %}",
    "{% set ns = namespace(l=1) %}{% for a in nums %}{% set ns.l = loop %}{% endfor %}"
    "{{ ns.l.index }}{{ ns.l.previtem }}",
    # a block that runs again while its own filters do
    "{% macro f(k) %}{% set x | replace('1', f(k - 1) if k else '0') %}{{ k }}{% endset %}"
    "{{ x }};{% endmacro %}{{ f(2) }}{{ f(1) }}",
    "{% macro f(k) %}"
    "{% filter replace('1', f(k - 1) if k else '0') | upper %}a{{ k }}{% endfilter %}"
    ";{% endmacro %}{{ f(2) }}{{ f(1) }}",
]


def grammar():
    cases = []
    for text in WHITE + STATEMENTS + ["{{ " + e + " }}" for e in EXPRESSIONS.strip().split("\n")]:
        try:
            cases.append({"template": text, "text": render(text, VARIABLES)})
        except Exception as e:
            sys.exit(f"{text}: {e}")
    print(json.dumps(VARIABLES) + "\n[" + ",\n".join(json.dumps(c) for c in cases) + "]")


# ---- comparing ----


def ask(renderer, path, contexts):
    """The answers of tests/bin/jinja_lines.c"""
    lines = "".join(json.dumps(c) + "\n" for c in contexts)
    p = subprocess.run([renderer, path, DATE], input=lines.encode(), capture_output=True)
    answers = [json.loads(line) for line in p.stdout.decode().splitlines()]
    if p.returncode != 0 or len(answers) != len(contexts):
        sys.exit(f"{path}: {renderer} ended with {p.returncode}: {p.stderr.decode()[-2000:]}")
    return answers


def compare_texts(renderer, path):
    """(same, refused by both, not supported, [what differs])"""
    tokens = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}
    contexts = [
        {"messages": m, "add_generation_prompt": p, "tools": None, "documents": None, **tokens}
        for m, p in itertools.product(conversations(TEXTS + MARKUP), (True, False))
    ]
    with open(path, encoding="utf-8", newline="") as f:
        template = f.read()
    same = refused = unsupported = 0
    differ = []
    for context, ours in zip(contexts, ask(renderer, path, contexts)):
        try:
            theirs = render(template, context)
        except Exception as e:
            theirs = None
            why = e
        if "error" in ours and theirs is None:
            refused += 1
        elif "error" in ours and ours["code"] == -3:
            unsupported += 1
        elif "error" in ours or theirs != ours["text"]:
            theirs = why if theirs is None else repr(theirs)
            differ.append(f"{context['messages']}: {theirs}, ours {ours}"[:2000])
        else:
            same += 1
    return same, refused, unsupported, differ


def kv_chat(program, model, messages, *options):
    p = subprocess.run(
        [program, "-m", model, "--date", DATE, *options, "-"],
        input=json.dumps(messages).encode(), capture_output=True
    )
    return [int(w) for w in p.stdout.split()] if p.returncode == 0 else p.stderr.decode()


def compare_ids(program, folder, vocabularies, name):
    from transformers import AutoTokenizer

    template, bos, eos = REAL[name]
    same, differ = 0, []
    with tempfile.TemporaryDirectory() as model:
        vocabulary = os.path.abspath(os.path.join(vocabularies, name, "tokenizer.json"))
        os.symlink(vocabulary, os.path.join(model, "tokenizer.json"))
        with open(os.path.join(model, "tokenizer_config.json"), "w", encoding="utf-8") as f:
            config = {"tokenizer_class": "PreTrainedTokenizerFast",
                      "bos_token": bos, "eos_token": eos}
            json.dump({**config, "chat_template": read(folder, template)}, f)
        tokenizer = AutoTokenizer.from_pretrained(model)
        for messages in conversations(TEXTS):
            prompt = messages[-1]["role"] != "assistant"
            try:
                variables = {"messages": messages, "add_generation_prompt": prompt,
                             "bos_token": bos, "eos_token": eos}
                render(tokenizer.chat_template, variables)
                text = tokenizer.apply_chat_template(messages, add_generation_prompt=prompt,
                                                     tokenize=False)
            except Exception:
                continue
            want = tokenizer(text, add_special_tokens=False)["input_ids"]
            got = kv_chat(program, model, messages)
            if got == want:
                same += 1
            else:
                differ.append(f"{messages}: {want}, ours {got}"[:2000])
    return same, differ


def compare_mistral(program, vocabularies, version, template):
    """The first version has no space before an answer in its template and one in mistral-common:
    without answers."""
    from mistral_common.protocol.instruct.request import ChatCompletionRequest
    from mistral_common.tokens.tokenizers.mistral import MistralTokenizer

    theirs = MistralTokenizer.v1() if version == "v1" else MistralTokenizer.v3()
    same, differ = 0, []
    model = os.path.join(vocabularies, "mistral-" + version)
    if version == "v3":
        with open(os.path.join(model, "tokenizer.json"), encoding="utf-8") as f:
            doc = json.load(f)
        # as the hub's folder has it: a space before the first word of all only
        doc.update({"normalizer": None, **STYLES["-first"]})
        write(vocabularies, "mistral-v3-first", doc)
        model += "-first"
    for messages in conversations([t for t in TEXTS if t.strip() == t and t]):
        if messages[-1]["role"] != "user" or version == "v1" and len(messages) > 1:
            continue
        try:
            want = theirs.encode_chat_completion(ChatCompletionRequest(messages=messages)).tokens
        except Exception:
            continue
        got = kv_chat(program, model, messages, "--template", template)
        if got == want:
            same += 1
        elif not (isinstance(got, str) and "take turns" in got):
            differ.append(f"{messages}: {want}, ours {got}"[:2000])
    return same, differ


def compare(renderer, program, folder, vocabularies):
    failed = False
    print("template                                            same  refused",
          " not supported  differ")
    for path in sorted(glob.glob(os.path.join(folder, "*.jinja"))):
        same, refused, unsupported, differ = compare_texts(renderer, path)
        failed |= len(differ) > 0
        name = os.path.basename(path)[:-6][:50]
        print(f"{name:50} {same:5} {refused:8} {unsupported:14} {len(differ):7}")
        print("".join(f"    {d}\n" for d in differ[:2]), end="")
    print("\nvocabulary                                          same  differ")
    found = {n: compare_ids(program, folder, vocabularies, n) for n in REAL}
    for version, template in ("v3", "mistral"), ("v1", "mistral-v1"):
        found[f"mistral-{version}, by mistral-common"] = compare_mistral(
            program, vocabularies, version, template)
    for name, (same, differ) in found.items():
        failed |= len(differ) > 0 or same == 0
        print(f"{name:50} {same:5} {len(differ):7}")
        print("".join(f"    {d}\n" for d in differ[:2]), end="")
    sys.exit(failed)


if __name__ == "__main__":
    command = {"unpack": unpack, "golden": golden, "grammar": grammar, "compare": compare}
    command[sys.argv[1]](*sys.argv[2:])
