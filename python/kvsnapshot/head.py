"""HEAD: which model, and how rows are stored (kv-snapshot.md, 4.1).

What is not known there is of a later version, and not damage: a key of model, rope or row_types,
and a text in the place of one of those that are listed. It is looked for before anything else,
whose range may have changed with it."""

from __future__ import annotations

from .content import MIB, Snapshot, Unsupported, check_keys, need, parse_json
from .latent import wrong_latent
from .rowstore import unknown_types, wrong_types
from .rowtypes import ITEM_SIZE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .container import Section
    from .content import Check, Parse, Rule


DTYPES = tuple(ITEM_SIZE)
ROPE_TYPES = ('default', 'linear', 'llama3', 'longrope', 'yarn')


def one_of(words: tuple[str, ...]) -> Rule:
    return lambda v: type(v) is str and v in words


def count(low: int, high: int) -> Rule:
    return lambda v: type(v) is int and low <= v <= high


def real(v: Any) -> bool:
    return type(v) in (int, float)


def real_not_0(v: Any) -> bool:
    return real(v) and v != 0


def boolean(v: Any) -> bool:
    return type(v) is bool


def hash_text(v: Any) -> bool:
    return type(v) is str and len(v) == 32 and all(c in '0123456789abcdef' for c in v)


def name_text(v: Any) -> bool:
    return type(v) is str and 1 <= len(v.encode('utf-8', 'surrogatepass')) <= 31


HEAD_KEYS: dict[str, Rule] = {
    'dtype': one_of(DTYPES), 'keys': one_of(('rope',)),
    'model': lambda v: type(v) is dict, 'next_position': count(1, (1 << 32) - 1)}
# there only in some snapshots
SPARE_HEAD_KEYS: dict[str, Rule] = {
    'documents': lambda v: type(v) is list and 0 < len(v) < 1024 and
    all(map(count(1, (1 << 32) - 2), v)) and v == sorted(set(v))}
MODEL_KEYS: dict[str, Rule] = {
    'architecture': name_text, 'attention_bias': boolean, 'tied_embeddings': boolean,
    'ffn': count(1, 1 << 24), 'hidden': count(1, 1 << 24), 'vocabulary': count(1, 1 << 24),
    'head_width': count(1, 1024), 'kv_heads': count(1, 4096), 'query_heads': count(1, 4096),
    'layers': count(1, 4096), 'norm_eps': real, 'rope': lambda v: type(v) is dict,
    'tokenizer': hash_text, 'weights': hash_text,
    'weights_dtype': one_of(DTYPES)}
ROPE_KEYS: dict[str, Rule] = {'type': one_of(ROPE_TYPES), 'theta': real}
ROPE_TYPE_KEYS: dict[str, dict[str, Rule]] = {
    'linear': {'factor': real},
    'llama3': {
        'factor': real, 'high_freq_factor': real, 'low_freq_factor': real,
        'original_max_position': count(1, (1 << 32) - 1)},
    'longrope': {
        'attention_factor': real, 'original_max_position': count(1, (1 << 32) - 1),
        'factors': lambda v: type(v) is list and all(real(x) and x > 0 for x in v)},
    'yarn': {
        'attention_factor': real, 'beta_fast': real, 'beta_slow': real, 'factor': real,
        'original_max_position': count(1, (1 << 32) - 1), 'truncate': boolean}}
SPARE_ROPE_TYPE_KEYS: dict[str, dict[str, Rule]] = {'yarn': {'query_beta': real_not_0}}
# there only where they say something
SPARE_MODEL_KEYS: dict[str, Rule] = {
    **dict.fromkeys(('attention_multiplier', 'embedding_multiplier', 'logits_scaling',
                     'residual_multiplier'), real_not_0),
    'latent_nope': count(1, 1024), 'latent_rank': count(1, 1022), 'latent_value': count(1, 1024),
    **dict.fromkeys(('mlp_bias', 'attention_sinks'), lambda v: v is True),
    **dict.fromkeys(('experts', 'experts_chosen'), count(1, 1024)),
    'attention_softcap': lambda v: real(v) and v > 0, 'logits_softcap': lambda v: real(v) and v > 0,
    'weights_rule': count(2, 2), 'window': count(1, (1 << 32) - 1),
    'whole_layers': lambda v: type(v) is list and v != [] and all(map(count(0, 4095), v)) and
    v == sorted(set(v))}
SPARE_ROPE_KEYS: dict[str, Rule] = {
    'skip': count(1, 4096), 'width': lambda v: count(2, 1022)(v) and v % 2 == 0,
    'window_theta': real_not_0}


def unknown_of(head: dict[str, Any]) -> str:
    """The first key or text of a later version; ''."""
    def part(of: dict[str, Any], key: str) -> dict[str, Any]:
        value = of.get(key)
        return value if type(value) is dict else {}

    model, rope = part(head, 'model'), part(part(head, 'model'), 'rope')
    for where, value, words in (
            ('dtype', head.get('dtype'), DTYPES), ('keys', head.get('keys'), ('rope',)),
            ('model.weights_dtype', model.get('weights_dtype'), DTYPES),
            ('model.rope.type', rope.get('type'), ROPE_TYPES)):
        if type(value) is str and value not in words:
            return f'{where}: {value!r}'
    ropes = [ROPE_KEYS, SPARE_ROPE_KEYS, *ROPE_TYPE_KEYS.values(), *SPARE_ROPE_TYPE_KEYS.values()]
    for where, own, rules in (('model', model, [MODEL_KEYS, SPARE_MODEL_KEYS]),
                              ('model.rope', rope, ropes)):
        for key in own:
            if not any(key in known for known in rules):
                return f'{where}.{key}'
    unknown = unknown_types(head.get('row_types'))
    return unknown and f'row_types{unknown}'


def parse_head(snapshot: Snapshot, section: Section, content: bytearray) -> None:
    head = parse_json(content)
    unknown = unknown_of(head)
    if unknown:
        raise Unsupported(f'{unknown} is not known')
    check_keys('', head, HEAD_KEYS, False, SPARE_HEAD_KEYS)
    need(head.get('documents', [0])[-1] < head['next_position'],
         'documents: not below next_position')
    model = head['model']
    check_keys('model.', model, MODEL_KEYS, True, SPARE_MODEL_KEYS)
    need(('experts' in model) == ('experts_chosen' in model) and model.get('experts_chosen', 0) <=
         model.get('experts', 0), 'model.experts_chosen: not of the experts')
    need(model['query_heads'] % model['kv_heads'] == 0,
         f"query_heads {model['query_heads']} of kv_heads {model['kv_heads']}")
    rope = model['rope']
    kind = rope.get('type')
    keys = dict(ROPE_KEYS, **(ROPE_TYPE_KEYS.get(kind, {}) if type(kind) is str else {}))
    spare = dict(SPARE_ROPE_KEYS,
                 **(SPARE_ROPE_TYPE_KEYS.get(kind, {}) if type(kind) is str else {}))
    check_keys('model.rope.', rope, keys, True, spare)
    need(rope.get('width', 0) < model['head_width'], 'model.rope.width is not below head_width')
    need(len(rope.get('factors', ())) in (0, rope.get('width', model['head_width']) // 2) and
         rope.get('factors') != [], 'model.rope.factors do not fit the head width')
    whole = model.get('whole_layers', [])
    need('window' in model or not (whole or 'window_theta' in rope), 'there is no model.window')
    need(len(whole) < model['layers'] and max(whole, default=0) < model['layers'],
         f'model.whole_layers: {whole} of {model["layers"]}')
    need('row_types' in head or not snapshot.features & 1,
         'row_types is missing, and bit 0 of the features is set')
    if 'row_types' in head:
        need(snapshot.features & 1, 'row_types, and bit 0 of the features is not set')
        wrong = wrong_types(head['row_types'], head['dtype'], model['layers'], model['head_width'])
        need(not wrong, f'row_types{wrong}')
    need(not (wrong := wrong_latent(model, snapshot.features & 2, head.get('row_types'))), wrong)
    snapshot.head = head


SIZES: dict[str, Check] = {
    'HEAD': lambda _, s: need(s.raw_size <= MIB, 'longer than 1 MiB')}
PARSERS: dict[str, Parse] = {'HEAD': parse_head}
