"""Values that are the first channels of keys: what HEAD may say of them (kv-snapshot.md, 4.26).
What is wrong is told as a message, or its end; '' is nothing."""

from __future__ import annotations

from . import kivi

TYPE_CHECKING = False       # typing takes time to load
if TYPE_CHECKING:
    from typing import Any

WIDTHS = ('latent_rank', 'latent_nope', 'latent_value')


def wrong_latent(model: dict[str, Any], feature: int, types: dict[str, Any] | None) -> str:
    """What is wrong with the widths of a model and, beside them, row_types, which are right apart
    from that, or None. feature: is bit 1 of the features set?"""
    there, rope = [name for name in WIDTHS if name in model], model['rope']
    if bool(feature) != bool(there):
        return 'model.latent_rank and bit 1 of the features do not agree'
    if not there:
        return ''
    if len(there) != len(WIDTHS):
        return f'model has only {", ".join(there)} of {", ".join(WIDTHS)}'
    if (model['kv_heads'] != 1 or 'width' not in rope or
            model['latent_rank'] + rope['width'] != model['head_width']):
        return 'model.latent_rank and rope.width do not make up head_width of one KV head'
    if 'window' in model or 'skip' in rope:
        return 'model.latent_rank with a window, or rope.skip'
    wrong = wrong_latent_types(types) if types else ''
    return wrong and f'row_types{wrong}'


def wrong_latent_types(types: dict[str, Any]) -> str:
    if types['keys'] != types['values']:
        return '.values: not those of keys, whose channels values are (latent_rank)'
    if 'residual' in types or any(kind in kivi.BITS for kind in types['keys']):
        return ': no residual, kivi2 or kivi4 with latent_rank'
    return ''
