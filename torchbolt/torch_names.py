# torchbolt/torch_names.py
"""Names that torch 2.13 has and that have no effect here, by the reason: options of torch._inductor, settings of
torch._dynamo.config and torch.compiler.config, logs, functions of torch._dynamo and torch._inductor. They are written
down here because torch's own tables are in modules which take seconds to import. options.py, config.py and logs.py have
those with an effect."""

from __future__ import annotations

# Reasons that options.py has options for, too.
NO_TUNING = "accepted: what there is to measure, max_autotune measures; all else is computed from the machine's facts"
NO_PADDING = "accepted: kernels handle odd sizes by masks; operands of products are padded on GPUs, where it pays"

# Of torch._inductor.list_options(): reason -> what the names begin with -> the rest of them.
_OPTIONS: dict[str, dict[str, str]] = {
    "accepted: concerns the code generators that torch.compile uses on GPUs, of which torchbolt uses none": {
        "": """
            assume_32bit_indexing benchmark_combo_kernel bundle_triton_into_fx_graph_cache
            combo_kernel_allow_mixed_sizes combo_kernel_autotune_grouping combo_kernel_foreach_dynamic_shapes
            combo_kernel_max_distance combo_kernel_max_num_args combo_kernel_max_num_nodes
            combo_kernel_peak_memory_increase_gb combo_kernel_peak_memory_pct_threshold
            combo_kernel_per_subkernel_blocks combo_kernels combo_kernels_autotune combo_kernels_pointwise_only
            cpu_backend cuda_backend cudagraph_policy cudagraph_unsafe_unbacked_ops custom_partitioner_fn
            custom_should_partition_ops cutedsl_enable_autotuning decompose_mem_bound_mm dynamic_scale_rblock
            eager_numerics.use_pytorch_libdevice enable_caching_generated_triton_templates
            epilogue_fusion_user_defined_triton_kernel external_matmul force_disable_cudagraph_TESTING_ONLY
            graph_partition keep_static_cubin_raw mtia.disable_welford_reduction nvgemm_max_profiling_configs
            nvgemm_supplement_configs runtime_triton_nan_asserts static_launch_user_defined_triton_kernels
            strict_static_cuda_launcher test_configs.runtime_triton_dtype_assert
            test_configs.runtime_triton_shape_assert tpu_backend triton_disable_device_detection
            triton_kernel_default_layout_constraint unsafe_ignore_unsupported_triton_autotune_args
            use_fast_triton_launcher use_launch_metadata_schema use_static_cuda_launcher xpu_backend
        """,
        "cuda.": """
            arch binary_remote_cache_force_write compile_opt_level cuda_cxx cutlass_backend_min_gemm_size cutlass_dir
            cutlass_dynamic_cluster_fallback cutlass_dynamic_cluster_shape cutlass_enabled_ops
            cutlass_epilogue_fusion_enabled cutlass_hash_with_compile_cmd cutlass_instantiation_level
            cutlass_max_profiling_configs cutlass_max_profiling_swizzle_options cutlass_op_allowlist_regex
            cutlass_op_denylist_regex cutlass_prescreening cutlass_tma_only enable_caching_codegen enable_cuda_lto
            enable_debug_info enable_ptxas_info generate_test_runner nvgemm_max_profiling_configs
            upload_to_binary_remote_cache use_binary_remote_cache use_fast_math version
        """,
        "cutlass.": """
            binary_remote_cache_force_write compile_opt_level cutlass_backend_min_gemm_size cutlass_dir
            cutlass_dynamic_cluster_fallback cutlass_dynamic_cluster_shape cutlass_enabled_ops
            cutlass_epilogue_fusion_enabled cutlass_hash_with_compile_cmd cutlass_instantiation_level
            cutlass_max_profiling_configs cutlass_max_profiling_swizzle_options cutlass_op_allowlist_regex
            cutlass_op_denylist_regex cutlass_prescreening cutlass_tma_only enable_caching_codegen enable_debug_info
            generate_test_runner upload_to_binary_remote_cache use_binary_remote_cache use_fast_math
        """,
        "halide.": """
            asserts cpu_target debug gpu_target scan_kernels scheduler_cpu scheduler_cuda
        """,
        "rocm.": """
            arch ck_dir ck_max_profiling_configs ck_supported_arch ck_tile_max_profiling_configs compile_opt_level
            contiguous_threshold flush_denormals generate_test_runner is_debug kBatch_sweep n_max_profiling_configs
            origami origami_topk print_kernel_resource_usage rocm_home save_temps split_k_threshold use_fast_math
            use_preselected_instances
        """,
        "triton.": """
            autotune_at_compile_time autotune_cublasLt autotune_pointwise autotune_with_sample_inputs
            coalesce_tiling_analysis codegen_upcast_to_fp32 cooperative_reductions cudagraph_capture_sizes
            cudagraph_dynamic_shape_warn_limit cudagraph_min_partition_size cudagraph_or_error
            cudagraph_partition_memory_budget cudagraph_skip_dynamic_graphs cudagraph_support_input_mutation
            cudagraph_trees_history_recording cudagraph_trees_objgraph cudagraph_unexpected_rerecord_limit
            debug_dump_kernel_inputs debug_sync_graph debug_sync_kernel decompose_k_threshold decompose_sort_ops
            dense_indexing descriptive_names disallow_failing_autotune_kernels_TESTING_ONLY divisible_by_16
            dynamic_disable_pipelining emit_pointer_range_32 enable_pdl enable_persistent_tma_matmul
            enable_template_tma_store enable_tma_load_for_template_epilogue fast_path_cudagraph_asserts
            force_cooperative_reductions force_cudagraph_sync force_cudagraphs_warmup inject_relu_bug_TESTING_ONLY
            max_kernel_dump_occurrences max_tiles min_split_scan_rblock mix_order_reduction
            mix_order_reduction_allow_multi_stages mix_order_reduction_autotune_split_size
            mix_order_reduction_initial_xblock mix_order_reduction_max_reads mix_order_reduction_non_strict_mode
            mix_order_reduction_split_size multi_kernel native_matmul nested_reduction num_decompose_k_splits
            persistent_reductions prefer_nd_tiling proton_group_by_sm proton_output_dir proton_per_cta_occupancy
            proton_profiling proton_split_invocations reorder_for_reducing_graph_partitions skip_cudagraph_warmup
            skip_l1_cache slow_path_cudagraph_asserts spill_threshold store_cubin tile_reductions
            tiling_prevents_pointwise_fusion tiling_prevents_reduction_fusion transpose_discontiguous_tensor_descriptor
            unique_user_kernel_names use_block_ptr use_tensor_descriptor use_two_step_variance_min_numel
            use_two_step_variance_threshold
        """,
        "xpu.": """
            arch binary_remote_cache_force_write compile_opt_level cutlass_backend_min_gemm_size cutlass_dir
            cutlass_dynamic_cluster_fallback cutlass_dynamic_cluster_shape cutlass_enabled_ops
            cutlass_epilogue_fusion_enabled cutlass_hash_with_compile_cmd cutlass_instantiation_level
            cutlass_max_profiling_configs cutlass_max_profiling_swizzle_options cutlass_op_allowlist_regex
            cutlass_op_denylist_regex cutlass_prescreening cutlass_tma_only enable_caching_codegen enable_debug_info
            generate_test_runner oneapi_root upload_to_binary_remote_cache use_binary_remote_cache use_fast_math version
        """,
    },
    "accepted: torchbolt.save() writes programs, and no C++ library is made of them": {
        "": """
            aot_inductor_mode.compile_standalone cpp_wrapper_build_separate enable_autograd_for_aot fx_wrapper
            is_predispatch use_aoti
        """,
        "aot_inductor.": """
            allow_stack_allocation aoti_shim_library aoti_shim_library_path autotune_per_kernel_alloc check_lowerbound
            compile_wrapper_opt_level cross_target_platform custom_op_libs custom_ops_to_c_shims debug_compile
            debug_intermediate_value_printer debug_symbols dump_aoti_minifier dynamic_linkage embed_kernel_binary
            emit_multi_arch_kernel enable_frame_pointer enable_line_tables enable_lto filtered_kernel_names
            force_mmap_weights link_libtorch metadata model_name_for_generated_files output_path package
            package_constants_in_so package_constants_on_disk_format package_cpp_only precompile_headers presets
            raise_error_on_ignored_optimization repro_level serialized_in_spec serialized_out_spec use_consts_asm_build
            use_minimal_arrayref_interface use_runtime_constant_folding weight_use_caching_allocator
        """,
    },
    "accepted: collectives run as in eager": {
        "": """
            _collective.auto_select _collective.one_shot_all_reduce_threshold_bytes _fuse_ddp_bucket_size
            _fuse_ddp_communication _fuse_ddp_communication_passes _micro_pipeline_tp bucket_all_gathers_bucket_mode
            bucket_all_gathers_fx bucket_all_gathers_fx_bucket_size_determinator bucket_all_reduces_fx
            bucket_all_reduces_fx_bucket_size_determinator bucket_reduce_scatters_bucket_mode bucket_reduce_scatters_fx
            bucket_reduce_scatters_fx_bucket_size_determinator collective_benchmark_nruns collective_benchmark_timeout
            cpu_gpu_bw dedup_reduce_scatters distributed_max_autotune_gemm estimate_op_runtime inter_node_bw
            intra_node_bw min_overlap_ratio reorder_for_compute_comm_overlap reorder_for_compute_comm_overlap_passes
            reorder_prefetch_limit runtime_estimations_mms_benchmark
        """,
        "aten_distributed_optimizations.": """
            allow_comms_decompositions bucket_exposed_first bucket_mode bucket_only_internode_comms collective_bucketing
            collective_estimator compute_estimator compute_overlap_multipler custom_runtime_estimation
            enable_fusion_regions enable_low_contention_collectives enable_overlap_scheduling insert_overlap_deps
            log_final_collectives_estimations low_contention_min_bytes_per_rank low_contention_skip_overlap_check
            max_coll_distance max_compute_pre_fetch max_in_flight_gb max_memory_increase_gb max_memory_increase_ratio
            overlap_scheduling_autofix_cycles pre_bucketing_fsdp_collectives
            pre_bucketing_fsdp_collectives_bucket_cap_mb pre_bucketing_fsdp_collectives_max_bucket_cap_mb
            pre_bucketing_fsdp_collectives_min_bucket_cap_mb
            pre_bucketing_fsdp_collectives_saturation_calibration_multiplier pre_bucketing_fsdp_collectives_verbose
            prioritize_bucketing_during_scheduling profile_guided_estimations_profile_path spmd_check spmd_mismatch
        """,
    },
    "accepted: the cache's key is the program; TORCHBOLT_CACHE_DIR and TORCHBOLT_REMOTE_CACHE say where it is": {
        "": """
            _cache_config_factory_keys _cache_config_ignore_prefix autotune_local_cache autotune_remote_cache
            bundled_autotune_remote_cache cache_sdpa_constraint cpp.gemm_cache_blocking cpp_cache_precompile_headers
            fx_graph_remote_cache global_cache_dir non_blocking_remote_cache_write remote_gemm_autotune_cache
            search_autotune_cache unsafe_marked_cacheable_functions unsafe_skip_cache_dynamic_shape_guards
        """,
    },
    NO_TUNING: {
        "": """
            autoheuristic_collect.mixed_mm autoheuristic_collect.pad_mm autoheuristic_log_path
            autoheuristic_use.mixed_mm autoheuristic_use.pad_mm autotune_fallback_to_aten autotune_in_subproc
            autotune_lookup_table autotune_multi_device autotune_num_choices_displayed benchmark_epilogue_fusion
            benchmark_fusion benchmark_harness benchmark_kernel coordinate_descent_check_all_directions
            coordinate_descent_search_radius incremental_autotune inductor_choices_class inductor_default_autotune_rep
            inductor_default_autotune_warmup lookup_table.check_src_hash lookup_table.table
            max_autotune_allow_flexible_layouts max_autotune_conv_backends max_autotune_conv_bwd_input_backends
            max_autotune_conv_bwd_weight_backends max_autotune_flex_search_space max_autotune_gemm_backends
            max_autotune_gemm_search_space max_autotune_prune_choices_based_on_shared_mem
            max_autotune_report_choices_stats max_autotune_subproc_graceful_timeout_seconds
            max_autotune_subproc_result_timeout_seconds max_autotune_subproc_terminate_timeout_seconds
            max_epilogue_benchmarked_choices min_num_split mixed_mm_choice multi_kernel_hints pipeline_max_autotune_gemm
            precompilation_timeout_seconds use_experimental_benchmarker use_torch_profiler_benchmarker
        """,
        "cpp.": """
            gemm_max_k_slices gemm_thread_factors march min_chunk_size simdlen vec_isa_ok
        """,
        "test_configs.": """
            autotune_choice_desc_regex autotune_choice_name_regex distort_benchmarking_result
        """,
    },
    "accepted: TORCHBOLT_LOGS, explain() and trace.enabled show what is compiled": {
        "": """
            _profile_var annotate_training comment_origin debug debug_fusion debug_index_asserts debug_ir_traceback
            developer_warnings disable_progress enabled_metric_tables generate_intermediate_hooks kernel_name_max_ops
            log_tlparse profile_bandwidth profile_bandwidth_output profile_bandwidth_regex
            profile_bandwidth_with_do_bench_using_profiling profiler_mark_wrapper_call save_args
            torchinductor_worker_logpath verbose_progress warn_mix_layout worker_log_path worker_suppress_logging
        """,
        "cpp.": """
            descriptive_names enable_kernel_profile inject_log1p_bug_TESTING_ONLY
        """,
        "trace.": """
            compile_profile debug_log dot_graph_shape draw_orig_fx_graph fx_graph fx_graph_transformed
            graph_diagram_format info_log ir_post_fusion ir_pre_fusion log_autotuning_results log_url_for_graph_xform
            orig_fx_graph_diagram_format output_code provenance_tracking_level save_real_tensors upload_tar
        """,
    },
    "accepted: no FX graph is made on the way, so there is none for a pass to change": {
        "": """
            _post_fusion_custom_pass _pre_fusion_custom_pass add_pre_grad_passes disabled_passes
            efficient_conv_bn_eval_fx_passes fx_passes_numeric_check joint_custom_post_pass joint_custom_pre_pass
            post_grad_custom_post_pass post_grad_custom_pre_pass post_grad_fusion_options pre_grad_custom_pass
            pre_grad_fusion_options pre_grad_pass_timing remove_pre_grad_passes split_cat_fx_passes
            test_configs.bisect_pre_grad_graph use_dce use_joint_graph_passes use_post_grad_passes use_pre_grad_passes
        """,
    },
    NO_PADDING: {
        "": """
            can_inplace_pad_graph_input disable_padding_cpu force_shape_pad inplace_padding pad_channels_last
            pad_dynamic_shapes pad_outputs padding_alignment_bytes padding_stride_threshold
        """,
    },
    "accepted: guards tell of sizes and strides before a kernel runs, and nothing asserts them again": {
        "": """
            align_random_eager alignment_asserts assert_indirect_indexing assume_aligned_inputs
            assume_unaligned_fallback_output check_stack_no_cycles_TESTING_ONLY do_not_emit_runtime_assertions
            nan_asserts scalar_asserts size_asserts test_configs.static_cpp_dtype_assert
        """,
    },
    "accepted: kernels compute and round in one way, the same in every run": {
        "": """
            _use_fp64_for_unbacked_floats apply_gumbel_max_trick batch_invariant deterministic
            eager_numerics.disable_ftz eager_numerics.division_rounding
            emulate_precision_casts_on_saved_tensors use_fast_math write_are_deterministic_algorithms_enabled
        """,
        "cpp.": """
            enable_floating_point_contract_flag enable_unsafe_math_opt_flag fallback_scatter_reduce_sum
            use_decompose_tanh use_two_step_variance_threshold
        """,
    },
    "accepted: the threads are the process's: TORCHBOLT_THREADS, torch.set_num_threads": {
        "": """
            compile_worker_wait_timeout cpp.dynamic_threads cpp.threads file_lock_timeout quiesce_async_compile_pool
            quiesce_async_compile_time worker_start_method
        """,
    },
    "accepted: machine code is made in this process, without a C++ compiler": {
        "": """
            disable_cpp_codegen
        """,
        "cpp.": """
            cxx enable_concat_linear enable_grouped_gemm_template enable_loop_tail_vec enable_tiling_heuristics
            force_inline_kernel inject_relu_bug_TESTING_ONLY max_horizontal_fusion_size no_redundant_loops
            use_constexpr_for_int_array use_small_dequant_buffer weight_prepack
        """,
    },
    "accepted: memory is planned for each program, and always used again": {
        "": """
            allow_buffer_reuse freezing_discard_parameters inplace_buffers max_fusion_buffer_group_pairwise_attempts
            max_fusion_unique_io_buffers memory_planning memory_pool partitioned_scatter_memory_budget
            reorder_for_peak_memory reorder_for_peak_memory_debug score_fusion_memory_threshold
            small_memory_access_threshold static_weight_shapes test_configs.track_memory_lifecycle
        """,
    },
    "accepted: what is fused, and how loops run, follows from the operators alone": {
        "": """
            _conv_default_backends _realize_acc_reads_threshold_default _realize_opcount_threshold_default
            aggressive_fusion b2b_gemm_pass batch_fusion constant_and_index_propagation conv_1x1_as_mm
            delay_realize_cheap_outputs epilogue_fusion_first epilogue_fusion_with_atomic_add
            expand_dimension_for_pointwise_nodes force_fuse_int_mm_with_mul force_layout_optimization
            force_pointwise_cat group_fusion keep_addmm_fused_for_half_dtypes layout_opt_default
            loop_index_inversion_in_fusion loop_ordering_after_fusion loop_reindexing_after_fusion
            max_complex_pointwise_cat_inputs max_fusion_size max_pointwise_cat_inputs online_softmax
            optimize_scatter_upon_const_tensor partitioned_scatter_enabled partitioned_scatter_max_partitions
            partitioned_scatter_min_partitions permute_fusion pick_loop_orders realize_acc_reads_size_threshold
            realize_acc_reads_threshold realize_cpu_acc_reads_threshold realize_cpu_opcount_threshold
            realize_opcount_threshold realize_reads_threshold reorder_for_locality split_reductions
            test_configs.force_filter_reduction_configs test_configs.max_mm_configs unroll_reductions_threshold
            use_mixed_mm
        """,
    },
    "accepted: concerns the inside of torch's own compiler": {
        "": """
            _raise_error_for_testing _save_config_ignore always_keep_tensor_constants bw_outputs_user_visible
            compute_all_bounds dce enable_auto_functionalized_v2 enable_linear_binary_folding fallback_by_default
            fallback_embedding_bag_byte_unpack implicit_fallbacks is_nightly_or_source joint_graph_constant_folding
            run_jit_post_compile_hook selective_decompose size_threshold_for_succ_based_strategy sleep_sec_TESTING_ONLY
            unbacked_symint_fallback wrap_inductor_compiled_regions
        """,
        "auto_chunker.": """
            amplify_ratio_threshold enable num_chunk output_size_threshold
        """,
        "test_configs.": """
            assume_bucketing_reduces_latency bisect_keep_custom_backend_for_inductor force_custom_op_decomposition
            force_extern_kernel_in_multi_template force_no_impl_grouping graphsafe_rng_func_ignores_fallback_random
            max_flex_configs use_libtorch
        """,
    },
}
OPTIONS: dict[str, str] = {
    begin + name: reason
    for reason, groups in _OPTIONS.items()
    for begin, names in groups.items()
    for name in names.split()
}

# Reason -> name -> torch's default, or what is always so here.
SETTINGS: dict[str, dict[str, object]] = {
    "it is always so here": {
        "guard_nn_modules": True,
        "inline_inbuilt_nn_modules": True,
        "skip_tensor_guards_with_matching_dict_tags": True,
        "enable_cpp_symbolic_shape_guards": True,
        "enable_cpp_guard_manager": True,
        "enable_cpp_framelocals_guard_eval": True,
        "enable_faithful_generator_behavior": True,
        "force_parameter_static_shapes": True,
        "force_nn_module_property_static_shapes": True,
        "enable_trace_contextlib": True,
        "capture_autograd_function": True,
        "capture_func_transforms": True,
        "allow_rnn": True,
        "nested_graph_breaks": True,
        "replay_side_effects": True,
        "dead_code_elimination": None,
        "prepare_freezing": True,
    },
    "a class statement ends a region, and the next begins right after it": {"enable_trace_load_build_class": False},
    "hooks of modules are recorded as they are": {"skip_nnmodule_hook_guards": True, "wrap_top_frame": False},
    "what is no operator of torch is Python code, run as it is": {
        "trace_numpy": True,
        "numpy_default_float": "float64",
        "numpy_default_int": "int64",
        "numpy_default_complex": "complex128",
        "use_numpy_random_stream": False,
        "traceable_tensor_subclasses": set(),
        "nontraceable_tensor_subclasses": set(),
        "raise_on_ctx_manager_usage": True,
        "capture_profiler_record_function": False,
        "capture_sparse_compute": True,
        "constant_fold_autograd_profiler_enabled": False,
        "graph_break_on_nn_param_ctor": True,
        "inline_torch_dispatch_torch_compile": True,
        "only_allow_pt2_compliant_ops": False,
        "skip_torchrec": True,
        "force_unspec_int_unbacked_size_like_on_torchrec_kjt": False,
        "dont_skip_tracing": False,
        "enable_trace_unittest": False,
        "allowed_functions_module_string_ignorelist": set(),
        "skipfiles_inline_module_allowlist": {},
        "ignore_logging_functions": set(),
    },
    "assert is run as it is written": {
        "rewrite_assert_with_torch_assert": True,
        "do_not_emit_runtime_asserts": False,
        "prefer_deferred_runtime_asserts_over_guards": False,
    },
    "backward passes are compiled with the forward ones, and autograd's engine calls them": {
        "optimize_ddp": True,
        "optimize_ddp_lazy_compile": False,
        "compiled_autograd": False,
        "compiled_autograd_kwargs_override": {},
        "trace_autograd_ops": False,
        "raise_on_unsafe_aot_autograd": False,
        "skip_fwd_side_effects_in_bwd_under_checkpoint": False,
        "leaf_function_check_escaped_gradients": False,
        "leaf_function_validate_outputs": False,
        "skip_fsdp_guards": True,
        "_unsafe_skip_fsdp_module_guards": False,
        "_autograd_backward_strict_mode_banned_ops": [],
        "_autograd_backward_strict_mode_conditional_banned_ops": [],
    },
    "stats(), explain() and TORCHBOLT_LOGS tell of what is compiled": {
        "cprofile": False,
        "dynamo_profiler": False,
        "report_guard_failures": True,
        "replay_record_enabled": False,
        "repro_after": None,
        "repro_level": 2,
        "repro_forward_only": False,
        "repro_ignore_non_fp": False,
        "repro_tolerance": 0.001,
        "same_two_models_use_fp64": True,
        "verify_correctness": False,
        "debug_dir_root": None,
        "base_dir": None,
        "issue_3_13_0_warning": True,
        "log_compilation_metrics": True,
        "log_graph_in_out_metadata": False,
        "pt2_compile_id_prefix": None,
        "record_compile_time_instruction_count": False,
        "record_runtime_overhead": True,
        "side_effect_replay_policy": "info",
        "generate_pycode": False,
        "_custom_ops_profile": None,
    },
    "the disk cache is of machine code; recordings are made anew in each process, or are what torchbolt.save() wrote": {
        "caching_precompile": False,
        "strict_precompile": False,
        "enable_aot_compile": True,
        "automatic_dynamic_local_pgo": True,
        "automatic_dynamic_remote_pgo": None,
        "job_id": None,
        "pgo_extra_read_key": None,
        "pgo_extra_write_key": None,
        "cache_key_tag": "",
    },
    "every name that is read has its guard": {
        "assume_dunder_attributes_remain_unchanged": True,
        "skip_guards_on_constant_func_defaults": False,
        "skip_no_tensor_aliasing_guards_on_parameters": True,
        "guard_nn_modules_using_dict_tags": True,
        "use_recursive_dict_tags_for_guards": False,
        "max_saved_pointers_for_recursive_dict_tags_check": 256,
        "use_lamba_guard_for_object_aliasing": True,
    },
    "equal kernels are compiled once anyway": {
        "track_nodes_for_deduplication": False,
        "use_graph_deduplication": False,
        "graph_deduplication_lint": False,
        "inline_invoke_subgraph": False,
        "inline_single_use_invoke_subgraph": True,
        "enable_invoke_subgraph_regional_compile": False,
    },
    "the first call is recorded": {"minimum_call_count": 1, "allow_empty_graphs": False},
    "sizes that changed become symbols, others where mark_dynamic says so": {
        "automatic_dynamic_shapes_mark_as": "dynamic",
        "automatic_dynamic_exclusion_guard": False,
        "dynamic_sources": "",
        "dynamic_values": "",
        "unbacked_sources": "",
        "_shapes_spec": None,
    },
    "numbers that changed are followed, as sizes are": {
        "specialize_int": False,
        "specialize_float": False,
        "allow_unspec_int_on_nn_module": False,
    },
    "item() ends a region only where Python needs to know the number": {"capture_scalar_outputs": False},
    "nonzero() and masks end a region only where Python asks how many there are": {
        "capture_dynamic_output_shape_ops": False
    },
    "concerns the inside of torch's own compiler": {
        "cudagraph_backend_keep_input_mutation": False,
        "cudagraph_backend_support_input_mutation": False,
        "force_cudagraph_gc": False,
        "debug_backend_override": "",
        "debug_dynamo_config_override": "",
        "debug_inductor_config_override": "",
        "debug_disable_compile_counter": False,
        "debug_force_graph_break_on_leaf_return": False,
        "debug_force_nested_calls": False,
        "enable_compiler_collectives": False,
        "enable_p2p_compilation": False,
        "enable_dynamo_decompositions": True,
        "error_on_dynamo_callback_in_fullgraph_compiled_code": False,
        "error_on_nested_fx_trace": True,
        "error_on_nested_jit_trace": True,
        "force_compile_during_fx_trace": False,
        "fake_tensor_cache_crosscheck_enabled": False,
        "fake_tensor_cache_enabled": True,
        "fake_tensor_disable_inference_mode": True,
        "inject_BUILD_SET_unimplemented_TESTING_ONLY": False,
        "install_free_tensors": False,
        "install_free_tensors_for_export": True,
        "invalidate_compile_context_weakrefs": None,
        "run_gc_after_compile": True,
        "skip_code_recursive_on_recompile_limit_hit": True,
        "use_lazy_graph_module": True,
        "_save_config_ignore": set(),
    },
}

OF_OTHER_PARTS = "it is a log of another part of torch, which TORCH_LOGS turns on as ever"

# Names of TORCH_LOGS: reason -> those that show nothing here. support/log.cpp has the others.
_LOGS: dict[str, str] = {
    "the call runs as it is, and no bytecode is traced or rewritten; dynamo shows what was recorded of it": """
        bytecode trace_bytecode trace_call trace_source graph_sizes fake_tensor not_implemented side_effects
        aot_graphs_effects
    """,
    "dynamic shows what decides about sizes": "sym_node trace_shape_events",
    "a backward pass is compiled with its forward; aot_joint_graph shows both": """
        compiled_autograd compiled_autograd_verbose
    """,
    "fusion and schedule show what was decided about kernels": """
        loop_ordering loop_tiling compute_dependencies auto_chunker inductor_metrics
    """,
    "what was measured stands in torchbolt.explain() and in its report": """
        autotuning benchmarking node_runtime_estimation
    """,
    "code is made by threads of this process; cache shows what was there already": "async_compile incremental",
    "collectives keep the place that the program gives them": "overlap overlap_scheduling ddp_graphs",
    "equal layers share a program without being marked": "graph_region_expansion hierarchical_compile annotation",
    "cudagraphs shows what was recorded, and why there is none": "cudagraph_static_inputs",
    OF_OTHER_PARTS: """
        autograd torch distributed c10d ddp pp fsdp dtensor onnx onnx_diagnostics native_dsl export
    """,
}
LOGS: dict[str, str] = {name: reason for reason, names in _LOGS.items() for name in names.split()}

# Functions of torch._dynamo, torch._inductor and their parts that people know: what there is instead.
_FUNCTIONS: dict[str, str] = {
    "sizes that data decides are symbols without being marked": "mark_unbacked override_optimization_hint",
    "programs do not rest on where tensors lie": "mark_static_address",
    "torchbolt.disable(fn) keeps a function out, torchbolt.graph_break() ends a region": """
        skip_frame step_unsupported disallow_in_graph forbid_in_graph
    """,
    "functions run and are recorded as they are; torchbolt.allow_in_graph makes one operator of a function": """
        nonstrict_trace leaf_function dont_skip_tracing
    """,
    "torchbolt.compile(fn, fullgraph=True) and torchbolt.disable do that": "optimize optimize_assert run",
    "settings are torchbolt.config's": "patch_dynamo_config",
    "sys.setrecursionlimit is the limit of compiled calls, too": "set_recursion_limit get_recursion_limit",
    "torchbolt.save(compiled, path) after a call and torchbolt.load(path, fn) take its place": "save_compiled_function",
    "a region ends at one instruction, in nested calls as well": "disable_nested_graph_breaks",
    "mode and options of torchbolt.compile say where CUDA graphs are used": "override_cudagraphs",
    "torchbolt.save(compiled, path) after a call and torchbolt.load(path, fn) keep what was compiled for it": """
        aot_compile aoti_compile_and_package aoti_load_package standalone_compile
    """,
    "`torchbolt bisect` finds the region, operators and pass": "compiler_bisector",
    "torchbolt.stats() counts, and torchbolt.explain tells of each region": "on_compile_start on_compile_end",
}
FUNCTIONS: dict[str, str] = {name: reason for reason, names in _FUNCTIONS.items() for name in names.split()}
