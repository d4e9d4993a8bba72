#!/usr/bin/env python3
"""make - write every vector of ../kv-snapshot.md: passed/*.kv, failed/*.kv, failed/*.why.

	make.py [FOLDER]        default: the folder of this file

The same bytes come out on every machine. good.py, bad.py, badindex.py and badjson.py hold the
vectors, goodrows.py and badrows.py those with quantised rows, goodresidual.py and badresidual.py
those with full rows behind them, goodkivi.py and badkivi.py those with KIVI's types,
goodquerystats.py and badquerystats.py those with query statistics, goodvaluenorms.py and
badvaluenorms.py those with norms of value outputs, goodgatescores.py and badgatescores.py those
with gate scores, goodnoncausal.py and badnoncausal.py those with non-causal attention,
goodsinks.py and badsinks.py those with learned sinks,
goodlatent.py and badlatent.py those with latent attention,
badrowvalues.py what the last three have; kvwrite.py is the writer, kvrow.py and kvkivi.py quantise
rows, kvhead.py puts full ones behind. The .dump beside a passed vector is made by
tests/format/check_vectors.py --update, and read by a person before it is committed.
"""

import itertools
import os
import sys

sys.dont_write_bytecode = True

import bad
import badgatescores
import badindex
import badjson
import badkivi
import badlatent
import badnoncausal
import badquerystats
import badresidual
import badrows
import badsinks
import badvaluenorms
import good
import goodgatescores
import goodkivi
import goodlatent
import goodnoncausal
import goodquerystats
import goodresidual
import goodrows
import goodsinks
import goodvaluenorms


def write(folder, name, data):
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, name), 'wb') as file:
        file.write(data)


def main(arguments):
    folder = arguments[0] if arguments else os.path.dirname(os.path.abspath(__file__))
    for name, data in itertools.chain(good.vectors(), goodrows.vectors(),
                                      goodresidual.vectors(), goodkivi.vectors(),
                                      goodquerystats.vectors(), goodvaluenorms.vectors(),
                                      goodgatescores.vectors(), goodnoncausal.vectors(),
                                      goodlatent.vectors(), goodsinks.vectors()):
        write(os.path.join(folder, 'passed'), f'{name}.kv', data)
    for name, data, status, word in itertools.chain(bad.vectors(), badindex.vectors(),
                                                badjson.vectors(), badrows.vectors(),
                                                badresidual.vectors(), badkivi.vectors(),
                                                badquerystats.vectors(), badvaluenorms.vectors(),
                                                badgatescores.vectors(), badnoncausal.vectors(),
                                                badlatent.vectors(), badsinks.vectors()):
        write(os.path.join(folder, 'failed'), f'{name}.kv', data)
        write(os.path.join(folder, 'failed'), f'{name}.why', f'{status}\n{word}\n'.encode())


if __name__ == '__main__':
    main(sys.argv[1:])
