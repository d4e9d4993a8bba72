#!/bin/sh
# SpeContext (Xu et al. 2025): all rows stay, and each step reads those of the tokens that a
# retrieval head chooses before it, the same in all layers. `retriever` is the folder of the head
# (train/retrieval_head.py makes one); `sink` tokens at the beginning of the text (4) and the last
# `recent` (16) are read in any case, within the budget. The paper has neither.
. "$(dirname "$0")/common.sh"

retriever=
sink=4
recent=16
settings retriever sink recent
[ -n "$retriever" ] || die "which retrieval head? -s retriever=FOLDER, or a line of $conf"
shared prefill --retrieval-head "$retriever" >"$out"
retrieve "specontext head=$(word "$retriever") sink=$sink recent=$recent"
