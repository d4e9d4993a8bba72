/* gpu_ops.h - the functions of the table of ops; contracts in ops/ops.h */
#ifndef GPU_OPS_H
#define GPU_OPS_H

#include "ops/ops.h"

extern "C" {
op_close gpu_close;
op_use_kernels gpu_use_kernels;
op_mem_info gpu_mem_info;
op_alloc gpu_alloc;
op_free gpu_free;
op_put gpu_put;
op_put_scattered gpu_put_scattered;
op_get gpu_get;
op_get_side gpu_get_side;
op_event_record gpu_event_record;
op_event_wait gpu_event_wait;
op_host_alloc gpu_host_alloc;
op_host_free gpu_host_free;
op_get_async gpu_get_async;
op_copy gpu_copy;
op_clear gpu_clear;
op_expect gpu_expect;
op_weights gpu_weights;
op_graph_begin gpu_graph_begin;
op_graph_end gpu_graph_end;
op_graph_launch gpu_graph_launch;
op_embed gpu_embed;
op_embed_ids gpu_embed_ids;
op_argmax gpu_argmax;
op_rmsnorm gpu_rmsnorm;
op_rope gpu_rope;
op_append gpu_append;
op_compact gpu_compact;
op_compact_listed gpu_compact_listed;
op_round gpu_round;
op_swiglu gpu_swiglu;
op_temper gpu_temper;
op_layernorm gpu_layernorm;
op_split_pairs gpu_split_pairs;
op_project gpu_project;
op_rope_append gpu_rope_append;
op_rope_append_each gpu_rope_append_each;
op_geglu gpu_geglu;
op_softcap gpu_softcap;
op_clamp gpu_clamp;
op_copy_channels gpu_copy_channels;
op_head_products gpu_head_products;
op_mix gpu_mix;
op_repeat_heads gpu_repeat_heads;
op_ffn gpu_ffn;
op_experts gpu_experts;
op_scale_rows gpu_scale_rows;
op_matmul gpu_matmul;
op_attend gpu_attend, gpu_checked_attend;
op_attend_each gpu_attend_each, gpu_checked_attend_each;
op_attend_mass gpu_attend_mass, gpu_checked_attend_mass;
op_lse_merge gpu_lse_merge;
op_query_stats gpu_query_stats;
op_value_norms gpu_value_norms;
op_activate gpu_activate;
op_gate_scores gpu_gate_scores;
op_window_mass gpu_window_mass, gpu_checked_window_mass;
op_knorm gpu_knorm;
op_keydiff gpu_keydiff;
op_rank_rows gpu_rank_rows;
op_pack_bits gpu_pack_bits;
op_pack_pages gpu_pack_pages;
op_bits_scores gpu_bits_scores, gpu_checked_bits_scores;
op_page_scores gpu_page_scores;
op_key_scores gpu_key_scores;
op_group_reduce gpu_group_reduce;
op_topk gpu_topk;
op_scores_by_label gpu_scores_by_label;
op_attend_chosen gpu_attend_chosen, gpu_checked_attend_chosen;
op_gather gpu_gather;
op_rebuild gpu_rebuild;
op_fetch_chosen gpu_fetch_chosen;
op_fetch_wait gpu_fetch_wait;
}

#endif
