"""What tests cost: the marks of whole folders, files and single tests. `tests/marking.py` checks that they are true."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from fnmatch import fnmatchcase
from functools import cache
from typing import Any

import pytest

# Mark --> what it means.
MEANINGS: dict[str, str] = {
    "rtl": "compiles or runs a simulator of hardware",
    "synth": "synthesizes with yosys",
    "pnr": "places and routes",
    "slow": "takes longer than half a second, or starts other commands that do",
    "long": "is one more row of a table whose other rows run the same code, or joins what other tests check apart; "
    "`make test-long` runs it",
}

FAST = "not rtl and not synth and not pnr and not slow and not long"
"""The expression of `make test-fast`."""

# Folder, file, or file::test, below tests --> its marks.
MARKS: dict[str, tuple[str, ...]] = {
    "benchmarks": ("rtl", "synth", "pnr", "slow"),
    "dynamo": ("slow",),
    "dynamo/test_dynamo.py::test_dynamo_equals_composed_reference_on_the_virtual_board": ("rtl", "synth", "slow"),
    "export/test_onnx.py::test_drawn_network_gives_the_same_integers_and_is_read_back": ("slow",),
    "export/test_onnx.py::test_example_gives_the_same_integers_and_results": ("slow",),
    "export/test_onnx.py::test_sums_of_any_width_are_exact": ("slow",),
    "export/test_onnx_loops.py": ("slow",),
    "export/test_c.py": ("slow",),
    "export/test_c_steps.py": ("slow",),
    "benchmarks/test_designs.py": ("slow",),
    "benchmarks/test_exported_int8.py": ("slow",),
    "export/test_driver.py": ("slow",),
    "hdl/link/test_ftdi.py": ("slow",),
    "hdl/link/test_rates.py": ("slow",),
    "hdl/link/test_uart.py::test_uart_device_speaks_the_rate_of_its_host": ("slow",),
    "hdl/link/test_uart.py::test_uart_device_answers_through_its_pins": ("slow",),
    "hdl/link/test_spi.py::test_spi_device_answers_images_through_its_pins": ("slow",),
    "hdl/link/test_spi.py::test_spi_device_answers_whatever_the_transfers_are": ("slow",),
    "frontend/test_brevitas_loops.py": ("slow",),
    "frontend/test_fixed_steps.py": ("slow",),
    "frontend/test_initial_states.py": ("slow",),
    "frontend/test_loop_capture.py": ("slow",),
    "export/test_c_attention.py": ("slow",),
    "export/test_c_commands.py": ("slow",),
    "export/test_c_loops.py": ("slow",),
    "export/test_c_transformers.py": ("slow",),
    "flow/test_activations.py": ("slow",),
    "flow/test_activations.py::test_mlp_of_8_bits_with_common_steps_equals_reference_in_rtl": ("rtl", "synth", "slow"),
    "flow/test_activations.py::test_mlp_of_8_bits_on_a_shared_engine_equals_reference_in_rtl": ("rtl", "synth", "slow"),
    "flow/test_attention.py": ("slow",),
    "flow/test_attention.py::test_attention_equals_reference_in_rtl": ("rtl", "synth", "slow"),
    "flow/test_bitstream.py": ("synth", "pnr", "slow"),
    "flow/test_board_budget.py::test_captured_graph_is_refused_only_where_the_weights_that_are_left_are_too_many": (
        "slow",
    ),
    "flow/test_carries.py": ("synth",),
    "flow/test_chain.py": ("rtl", "synth", "slow"),
    "flow/test_choices.py": ("slow",),
    "flow/test_choices.py::test_choices_equal_reference_in_rtl": ("rtl", "synth", "slow"),
    "flow/test_compiled.py::test_hardware_that_cannot_be_loaded_is_a_message": ("rtl",),
    "flow/test_record_cycles.py": ("rtl", "slow"),
    "flow/test_denoise.py": ("rtl", "slow"),
    "flow/test_drawn_networks.py": ("rtl", "slow"),
    "flow/test_end_to_end.py": ("rtl", "synth", "pnr", "slow"),
    "flow/test_exporting_core.py": ("synth",),
    "flow/test_floorplan.py::test_places_of_the_85f_are_those_of_the_device": ("pnr",),
    "flow/test_foreign_folder.py": ("synth",),
    "flow/test_fusion.py": ("rtl", "synth", "slow"),
    "flow/test_gates.py::test_gates_equal_reference_in_rtl": ("rtl", "synth", "slow"),
    "flow/test_gates.py::test_gates_equal_reference_from_ir_to_golden_stages": ("slow",),
    "flow/test_gates.py::test_products_go_to_dsp_blocks_where_there_are_any": ("slow",),
    "flow/test_measuring.py": ("rtl", "synth", "pnr", "slow"),
    "flow/test_model_file.py": ("slow",),
    "flow/test_netlist.py": ("rtl", "synth", "pnr", "slow"),
    "flow/test_normalized.py::test_normalized_networks_equal_reference_in_rtl": ("rtl", "synth", "slow"),
    "flow/test_normalized.py::test_random_normalized_networks_equal_reference_from_ir_to_golden_stages": ("slow",),
    "flow/test_normalized.py::test_softmaxes_equal_the_interpreter_in_rtl": ("rtl", "synth", "slow"),
    "flow/test_orders.py": ("rtl", "slow"),
    "flow/test_output_registers.py::test_synthesis_leaves_no_register_behind_a_block_ram": ("synth",),
    "flow/test_own_engine.py::test_example_equals_its_reference_in_rtl": ("rtl", "synth", "slow"),
    "flow/test_own_engine.py::test_wrong_hardware_is_found_in_rtl": ("rtl", "synth", "slow"),
    "flow/test_patching.py": ("rtl", "synth", "pnr", "slow"),
    "flow/test_place.py": ("synth", "pnr"),
    "flow/test_pooled_sums.py": ("slow",),
    "flow/test_pooled_sums.py::test_pooled_sums_equal_reference_in_rtl": ("rtl", "synth", "slow"),
    "flow/test_processes.py::test_run_rejects_program_that_is_not_there": ("synth",),
    "flow/test_random_networks.py::test_random_network_equals_reference_in_rtl": ("rtl", "synth", "slow"),
    "flow/test_retuning.py": ("synth", "pnr", "slow"),
    "flow/test_rows.py::test_random_rows_equal_reference_from_ir_to_golden_stages": ("slow",),
    "flow/test_rows.py::test_rows_equal_reference_in_rtl": ("rtl", "synth", "slow"),
    "flow/test_running.py": ("rtl", "synth", "pnr", "slow"),
    "flow/test_sensor_build.py::test_netlist_of_a_camera_shows_the_results_of_pytorch_at_its_pins": (
        "rtl",
        "synth",
        "slow",
    ),
    "flow/test_sensor_build.py::test_camera_to_result_equals_pytorch_and_a_wrong_pixel_is_found": (
        "rtl",
        "synth",
        "slow",
    ),
    "flow/test_sensor_build.py::test_pdm_microphone_to_result_equals_pytorch": ("rtl", "synth", "slow"),
    "flow/test_sensor_build.py::test_microphone_to_result_equals_pytorch_in_every_frame": ("rtl", "synth", "slow"),
    "flow/test_savings.py::test_merged_layers_equal_reference_in_rtl": ("rtl", "synth", "slow"),
    "flow/test_savings.py::test_branches_of_an_inception_block_are_one_layer": ("slow",),
    "flow/test_savings.py::test_example_maps_to_less": ("slow",),
    "flow/test_savings.py::test_unstructured_pruning_that_empties_channels_saves_them": ("slow",),
    "flow/test_slices.py::test_slices_equal_reference_in_rtl": ("rtl", "synth", "slow"),
    "flow/test_sources.py::test_sources_hash_changes_with_each_module_that_takes_part": ("slow",),
    "flow/test_stepping.py::test_engines_between_others_that_pause_take_the_same_cycles": ("slow",),
    "flow/test_stepping.py::test_mapped_networks_are_stepped_to_the_same_cycles": ("slow",),
    "flow/test_style.py": ("rtl", "synth", "pnr", "slow"),
    "flow/test_ram_mapping.py": ("synth",),
    "flow/test_synthesis.py": ("synth",),
    "flow/test_toolchain.py::test_run_yosys_rejects_mistake_with_its_own_words": ("synth",),
    "flow/test_toolchain.py::test_run_yosys_runs_in_the_folder": ("synth",),
    "flow/test_toolchain.py::test_yowasp_tools_are_compiled_once": ("pnr",),
    "flow/test_transposed.py::test_transposed_convolutions_equal_reference_in_rtl": ("rtl", "synth", "slow"),
    "flow/test_several_outputs.py": ("slow",),
    "flow/test_several_outputs.py::test_heads_equal_their_graph_in_hardware": ("rtl", "synth", "slow"),
    "flow/test_sequences.py::test_example_streams_what_the_model_gives": ("slow",),
    "flow/test_sequences.py::test_loop_behind_a_convolution_equals_pytorch_in_hardware": ("rtl", "slow"),
    "flow/test_sequences.py::test_loop_behind_a_convolution_gets_whole_images_on_every_link": ("rtl", "synth", "slow"),
    "flow/test_sequences.py::test_network_of_both_directions_runs_on_every_link": ("rtl", "synth", "slow"),
    "flow/test_sequences.py::test_recurrent_network_runs_on_every_link": ("rtl", "synth", "slow"),
    "flow/test_unneeded.py": ("synth",),
    "flow/test_virtual.py": ("rtl",),
    "flow/test_wide_numbers.py::test_wide_numbers_equal_reference_in_rtl": ("rtl", "synth", "slow"),
    "flow/test_wide_numbers.py::test_wide_numbers_equal_reference_up_to_golden_stages": ("slow",),
    "frontend/test_agreement.py::test_agreement_of_a_model_is_up_to_rounding": ("slow",),
    "frontend/test_brevitas.py::test_packages_of_doors_are_imported_for_their_own_models_alone": ("slow",),
    "frontend/test_brevitas.py::test_case_is_built_and_equal_or_refused_by_name": ("slow",),
    "frontend/test_brevitas.py::test_example_equals_brevitas_in_rtl": ("rtl", "synth", "slow"),
    "frontend/test_brevitas.py::test_tfc_equals_brevitas_in_rtl": ("rtl", "synth", "slow"),
    "frontend/test_brevitas.py::test_example_tells_real_digits": ("slow",),
    "frontend/test_brevitas.py::test_model_file_goes_through_check_and_ir": ("slow",),
    "frontend/test_conventions.py::test_half_way_points_are_the_same_in_rtl": ("rtl", "synth", "slow"),
    "frontend/test_graphs.py::test_what_nnhw_ir_writes_is_read_back_and_is_a_model": ("slow",),
    "frontend/test_onnx.py::test_case_is_built_and_equal_or_refused_by_name": ("slow",),
    "frontend/test_onnx.py::test_commands_of_the_page_run": ("slow",),
    "frontend/test_onnx.py::test_example_equals_reference_in_rtl": ("rtl", "synth", "slow"),
    "frontend/test_onnx.py::test_export_of_brevitas_is_the_model_of_brevitas": ("slow",),
    "frontend/test_onnx.py::test_files_of_both_exporters_come_in": ("slow",),
    "frontend/test_onnx.py::test_node_test_of_integers_is_exact_in_rtl": ("rtl", "synth", "slow"),
    "frontend/test_onnx.py::test_node_tests_of_known_operators_have_their_results": ("slow",),
    "frontend/test_onnx.py::test_tfc_of_the_zoo_has_the_sums_of_the_network_by_hand": ("slow",),
    "frontend/test_onnx.py::test_float_file_is_calibrated_on_the_command_line": ("slow",),
    "frontend/test_pt2e.py::test_commands_of_the_page_run": ("slow",),
    "frontend/test_pt2e.py::test_operators_are_registered_when_a_file_needs_them": ("slow",),
    "frontend/test_pt2e.py::test_programs_of_the_page_run": ("rtl", "synth", "slow"),
    "frontend/test_pt2e.py::test_program_equals_reference_in_rtl": ("rtl", "synth", "slow"),
    "frontend/test_pt2e.py::test_files_hold_programs_and_modules": ("slow",),
    "frontend/test_pt2e.py::test_example_classifies_digits_and_equals_pt2e": ("slow",),
    "frontend/test_pt2e.py::test_check_finds_no_problem_in_a_program": ("slow",),
    "frontend/test_torch_cases.py": ("slow",),
    "frontend/test_tflite.py::test_commands_of_the_page_run": ("slow",),
    "frontend/test_tflite.py::test_example_is_what_its_script_makes_and_tells_digits": ("slow",),
    "frontend/test_tflite.py::test_program_of_the_page_runs": ("slow",),
    "frontend/test_tflite.py::test_tflite_case_is_built_and_equal_or_refused_by_name": ("slow",),
    "frontend/test_tflite.py::test_tflite_network_equals_reference_in_rtl": ("rtl", "synth", "slow"),
    "frontend/test_tflite.py::test_damaged_files_are_read_or_refused": ("slow",),
    "frontend/test_tflite.py::test_kernels_scale_as_the_definition_says": ("slow",),
    "frontend/test_support.py::test_compiled_examples_have_every_engine_of_the_others": ("slow",),
    "frontend/test_support.py::test_examples_equal_reference_to_golden_stages": ("slow",),
    "frontend/test_support.py::test_examples_equal_reference_in_rtl": ("rtl", "synth", "slow"),
    "frontend/test_support.py::test_examples_of_loops_equal_reference_in_rtl": ("rtl",),
    "frontend/test_support.py::test_support_matrix_has_every_operator_and_op": ("slow",),
    "frontend/test_support.py::test_support_matrix_is_the_committed_one": ("slow",),
    "frontend/test_support.py::test_support_matrix_says_what_each_row_means": ("slow",),
    "frontend/test_reference.py::test_reference_may_be_used_first_in_several_threads": ("slow",),
    "hdl": ("rtl",),
    "hdl/test_cores.py": ("rtl", "synth", "slow"),
    "hdl/shared/test_ecp5.py": ("slow",),
    "hdl/shared/test_up5k.py": ("synth", "slow"),
    "ir/test_text.py::test_expressions_round_trip": ("slow",),
    "ir/test_text.py::test_loads_of_a_damaged_text_is_a_graph_or_an_error_of_nnhw": ("slow",),
    "ir/test_text.py::test_loads_gives_back_exactly_what_was_dumped": ("slow",),
    "ir/test_rescale.py::test_rescale_equals_the_c_code": ("slow",),
    "ir/test_waver.py::test_function_is_as_near_as_its_waver_says": ("slow",),
    "mapping/test_loops.py::test_loop_of_ones_own_equals_its_graph_in_hardware": ("rtl",),
    "mapping/test_loops.py::test_random_recurrent_network_equals_its_graph_in_hardware": ("rtl",),
    "mapping/test_loops.py::test_sequences_that_take_turns_share_engines_that_would_wait": ("rtl",),
    "mapping/test_positions.py::test_loop_behind_a_convolution_equals_its_graph_in_hardware": ("rtl", "slow"),
    "mapping/shared/test_shared_accelerator.py": ("slow",),
    "mapping/shared/test_chain.py": ("slow",),
    "mapping/shared/test_fusion.py": ("slow",),
    "mapping/shared/test_loops.py::test_program_of_a_loop_equals_its_graph_in_hardware": ("rtl", "slow"),
    "mapping/test_cost.py": ("synth", "pnr"),
    "mapping/test_mapper.py::test_mapper_rejects_a_network_that_does_not_fit": ("slow",),
    "mapping/test_mapper.py::test_mapping_of_mlp_reaches_the_bound_of_its_weight_memory": ("slow",),
    "mapping/test_mapper.py::test_mapping_stays_in_its_budget_of_flip_flops": ("slow",),
    "mapping/test_mapper.py::test_mapping_with_target_is_the_smallest_that_reaches_it": ("slow",),
    "mapping/test_schedule.py::test_depths_never_hang_under_random_stalls": ("slow",),
    "nn/test_attention.py::test_quantized_encoder_layer_is_near_float_and_exact_in_integers": ("slow",),
    "nn/test_attention.py::test_quant_modules_train": ("slow",),
    "nn/test_examples.py": ("slow",),
    "nn/test_recurrent_examples.py": ("slow",),
    "nn/test_recurrent_widths.py": ("slow",),
    "nn/test_sensor_examples.py": ("slow",),
    "nn/test_post_training.py::test_build_calibrates_a_float_model": ("slow",),
    "nn/test_post_training.py::test_quantize_leaves_out_what_does_nothing_in_eval_mode": ("slow",),
    "nn/test_quantize.py::test_power_of_two_scale_is_the_least_that_holds_the_peak": ("slow",),
    "nn/test_pairs.py::test_block_lowers_exactly": ("slow",),
    "passes/test_factors.py::test_any_thousandths_are_added_exactly": ("slow",),
    "passes/test_factors.py::test_random_decimal_scales_are_never_refused": ("slow",),
    "searching": ("slow",),
    "sim": ("rtl",),
    "test_lint.py": ("slow",),
    "test_docs.py::test_tutorial_runs": ("rtl", "slow"),
    "test_readme.py": ("rtl", "synth", "pnr", "slow"),
    "test_wheel.py": ("slow",),
    "written/test_written.py::test_example_of_the_page_runs": ("slow",),
    "written/test_written.py::test_network_becomes_what_the_table_says": ("slow",),
    "written/test_written.py::test_network_equals_reference_in_rtl": ("rtl", "slow"),
}

# Test or file, below tests, that only `make test-long` runs, as it joins what others check apart --> which ones do.
LONG: dict[str, str] = {
    "benchmarks/test_compiled.py::test_row_is_equal_and_counts_what_ran_where": "dynamo/test_dynamo.py",
    "benchmarks/test_lanes.py": "flow/test_synthesis.py",
    "benchmarks/test_mutants.py::test_what_tells_nothing_is_no_kill": "the other tests of the file",
    "benchmarks/test_networks.py::test_network_ai8x_mnist_has_the_golden_accumulators": (
        "the other networks of the file"
    ),
    "benchmarks/test_people.py::test_people_runs_a_model_through_and_keeps_what_the_same_code_gave": (
        "`test_a_quantized_model_is_captured_and_lowered_as_it_is`"
    ),
    "dynamo/test_dynamo.py::test_dynamo_finds_the_build_of_another_process": (
        "`test_dynamo_builds_once_for_all_batches_and_finds_it_on_disk`"
    ),
    "dynamo/test_example.py": "dynamo/test_dynamo.py",
    "export/test_c_transformers.py::test_vision_transformer_of_the_examples_is_equal_everywhere": (
        "`test_keyword_transformer_is_equal_everywhere`"
    ),
    "flow/test_chain.py::test_cycles_of_every_engine_are_counted_in_simulation": "flow/test_record_cycles.py",
    "flow/test_denoise.py::test_denoise_runs_in_rtl_with_the_predicted_cycles": (
        "mapping/test_schedule.py, flow/test_fusion.py"
    ),
    "flow/test_fusion.py::test_a_device_measures_layers_that_take_turns": "flow/test_measuring.py",
    "flow/test_fusion.py::test_cycles_of_layers_that_take_turns_are_counted_for_each_of_them": (
        "flow/test_record_cycles.py"
    ),
    "flow/test_own_engine.py::test_example_equals_its_reference_in_rtl": "`test_wrong_hardware_is_found_in_rtl`",
    "flow/test_running.py::test_running_a_program_measures_its_layers": "flow/test_measuring.py",
    "flow/test_savings.py::test_merged_layers_equal_reference_in_rtl": (
        "the other tests of the file, with the golden model"
    ),
    "flow/test_sensor_build.py::test_pdm_microphone_to_result_equals_pytorch": (
        "`test_microphone_to_result_equals_pytorch_in_every_frame`"
    ),
    "flow/test_sequences.py::test_example_streams_what_the_model_gives": (
        "nn/test_recurrent_examples.py, and the other tests of the file"
    ),
    "flow/test_style.py::test_shared_engine_makes_borders_of_what_pooling_reads_and_of_what_leaves": (
        "mapping/shared/test_programs.py, with the golden model"
    ),
    "frontend/test_brevitas.py::test_example_equals_brevitas_in_rtl": "`test_tfc_equals_brevitas_in_rtl`",
    "frontend/test_onnx.py::test_example_equals_reference_in_rtl": "`test_node_test_of_integers_is_exact_in_rtl`",
    "frontend/test_pt2e.py::test_program_equals_reference_in_rtl": (
        "the other tests of the file up to the graph, those of flow/ from the graph to RTL"
    ),
    "frontend/test_tflite.py::test_tflite_network_equals_reference_in_rtl": (
        "the other tests of the file up to the graph, those of flow/ from the graph to RTL"
    ),
    "hdl/link/test_ftdi.py::test_device_loads_its_program_from_the_flash_before_the_driver_has_the_pins": (
        "hdl/link/test_flash.py"
    ),
    "hdl/link/test_ftdi.py::test_flash_is_programmed_beside_an_ftdi_device": "hdl/link/test_flash.py",
    "hdl/link/test_shared.py::test_shared_engine_runs_one_network_after_the_other": "flow/test_running.py",
    "hdl/test_cores.py::test_axi_bench_finds_results_that_end_in_the_wrong_place": "sim/test_benches.py",
    "hdl/test_cores.py::test_wishbone_bench_finds_an_interrupt_without_a_result": (
        "`test_core_on_wishbone_equals_the_ir`"
    ),
    "searching/test_search.py::test_a_worker_of_dask_and_this_process_share_a_study": (
        "`test_two_processes_share_the_trials`"
    ),
    "sim/test_rescaled.py": "sim/test_networks.py",
    "test_wheel.py::test_wheel_registers_the_backend_of_torch_compile": "`test_wheel_builds_and_simulates`",
}

# Test, below tests --> patterns of the ids of those rows of its table that `make test` runs; its other rows are `long`.
# A pattern behind "!" takes rows out of those.
# Rows are kept that differ in kind: an operator, an engine, a board, a link, a width of its own; where a table is a
# product of cases and patterns of stalls, each engine keeps a pattern with and one without, and each case one of them.
ROWS: dict[str, tuple[str, ...]] = {
    "benchmarks/test_cmsis.py::test_vector_equals_rtl": ("conv_4",),
    "benchmarks/test_networks.py::test_network_equals_its_reference_behind_every_pass": (
        "ds_cnn_all2",
        "ecg_autoencoder",
        "mlp784_w8a8",
        "tfc_w1a1",
    ),
    "benchmarks/test_peak.py::test_each_group_of_an_array_on_a_large_device_keeps_an_enable_of_its_own": (
        "ulx3s_25f-0",
    ),
    "dynamo/test_dynamo.py::test_dynamo_equals_composed_reference_in_an_evaluation_loop": ("inference_mode",),
    "export/test_c.py::test_c_equals_the_interpreter": ("False-flags2", "True-flags0"),
    "export/test_c_transformers.py::test_keyword_transformer_is_equal_everywhere": ("False-1",),
    "export/test_driver.py::test_c_driver_gives_the_outputs_of_the_gateware": ("8-0.0",),
    "export/test_driver.py::test_micropython_driver_gives_the_outputs_of_the_gateware": ("8-0.0",),
    "export/test_onnx_loops.py::test_drawn_loops_give_the_same_integers": ("?-*",),
    "export/test_onnx_loops.py::test_examples_are_exported_and_compared": ("motion_lstm",),
    "fitting/test_fit.py::test_two_lines_need_few_block_rams_beside_the_weights": ("LeakyReLU",),
    "flow/test_activations.py::test_mlp_of_8_bits_on_a_shared_engine_equals_reference_in_rtl": ("tanh",),
    "flow/test_activations.py::test_mlp_of_8_bits_with_any_activation_runs_on_a_shared_engine_of_a_up5k": (
        "gelu",
        "prelu",
    ),
    "flow/test_activations.py::test_mlp_of_8_bits_with_common_steps_equals_reference_in_rtl": ("tanh",),
    "flow/test_attention.py::test_attention_equals_reference_from_ir_to_golden_stages": (
        "across",
        "bmm",
        "einsum",
        "float_mask",
        "norms",
        "tokens",
        "written_out",
    ),
    "flow/test_attention.py::test_attention_equals_reference_in_rtl": ("masked",),
    "flow/test_attention.py::test_random_attention_equals_reference_from_ir_to_golden_stages": ("1", "3"),
    "flow/test_bitstream.py::test_build_bitstream_is_whole_the_same_each_time_and_names_no_folder_of_this_machine": (
        "icebreaker",
    ),
    "flow/test_bitstream.py::test_build_bitstream_leaves_nothing_on_ctrl_c": ("pack", "synthesize"),
    "flow/test_chain.py::test_engines_in_a_row_equal_the_ir_at_everything_they_store": ("depthwise",),
    "flow/test_end_to_end.py::test_end_to_end_bitstream_holds_its_clock_and_computes_the_model": ("icebreaker-None",),
    "flow/test_foreign_folder.py::test_changed_facts_give_messages_when_a_report_is_made": ("capture*", "map*"),
    "flow/test_fusion.py::test_layers_that_take_turns_equal_the_ir_at_everything_they_store": ("planes",),
    "flow/test_gates.py::test_gates_equal_reference_in_rtl": ("mobilenet_v3",),
    "flow/test_measuring.py::test_device_counts_the_cycles_of_the_parts_and_of_nothing_else": ("grouped-*",),
    "flow/test_measuring.py::test_device_measures_each_part_as_predicted": ("grouped",),
    "flow/test_netlist.py::test_netlist_computes_the_model": ("icebreaker",),
    "flow/test_netlist.py::test_netlist_computes_the_model_through_the_pins_of_each_link": ("icebreaker-spi",),
    "flow/test_netlist.py::test_netlist_shows_a_product_whose_clock_is_cut": ("ulx3s_25f",),
    "flow/test_netlist.py::test_netlist_that_is_silent_is_a_link_error": ("icebreaker",),
    "flow/test_normalized.py::test_normalized_networks_equal_reference_in_rtl": ("two",),
    "flow/test_normalized.py::test_softmaxes_equal_the_interpreter_in_rtl": ("masked_tokens",),
    "flow/test_orders.py::test_orders_equal_reference_from_ir_to_golden_stages": (
        "along_rows",
        "bipolar*",
        "both",
        "channels_as_rows",
        "einsum",
        "heads",
        "mean_of_features",
        "one_*",
        "pixel_*",
        "shuffle",
        "stack",
        "sums",
        "transposed",
        "turned",
        "without_arrow",
    ),
    "flow/test_orders.py::test_orders_equal_reference_in_rtl": ("heads", "pixel_shuffle"),
    "flow/test_random_networks.py::test_random_network_equals_reference_from_ir_to_golden_stages": (
        "100[1-468]",
        "1010",
        "1012",
        "41",
    ),
    "flow/test_random_networks.py::test_random_network_equals_reference_in_rtl": ("1008", "1010"),
    "flow/test_record_cycles.py::test_counted_cycles_of_every_part_are_those_predicted": ("residual-True",),
    "flow/test_retuning.py::test_retuned_bitstream_is_what_place_and_route_makes_of_its_netlist": ("ulx3s_25f",),
    "flow/test_running.py::test_running_device_takes_an_input_with_a_zero_point_as_bytes": ("first2-streaming",),
    "flow/test_running.py::test_running_rejects_hardware_that_is_swapped_in_a_batch": ("and back",),
    "flow/test_sequences.py::test_recurrent_network_runs_on_every_link": ("3-True-auto",),
    "flow/test_several_outputs.py::test_heads_equal_their_graph_in_hardware": ("maps of two sizes",),
    "flow/test_stepping.py::test_mapped_networks_are_stepped_to_the_same_cycles": ("*-None", "residual-2000"),
    "flow/test_style.py::test_layers_that_no_array_runs_have_engines_behind_the_shared_one": ("signed",),
    "flow/test_style.py::test_shared_engine_equals_the_ir_at_everything_it_stores": ("residual-False",),
    "flow/test_synthesis.py::test_synthesize_takes_the_block_rams_of_the_cost_model": ("ecp5-ram", "ice40-rom"),
    "flow/test_transposed.py::test_transposed_convolutions_equal_reference_in_rtl": ("overlapping",),
    "flow/test_wide_numbers.py::test_wide_numbers_equal_reference_in_rtl": ("convolution-9-12",),
    "flow/test_wide_numbers.py::test_wide_numbers_equal_reference_up_to_golden_stages": ("*-9", "linear-16"),
    "frontend/test_brevitas.py::test_case_is_built_and_equal_or_refused_by_name": (
        "[!lm]*",
        "layers-[!Q]*",
        "layers-Quant[!L]*",
        "layers-QuantLinear*",
        "models-tfc_1w2a",
        "!activations-*MSE",
        "!activations-*Init",
        "!biases-Int24Bias",
        "!biases-*FloatInternalScaling",
        "!layers-QuantReLU, bit width learned",
        "!layers-QuantReLU, stochastic",
        "!weights-*FloatMSE",
        "!weights-Int8WeightPerChannelFloatDecoupled",
        "!weights-ShiftedUint8WeightPerTensorFloat",
        "!truncations-RoundTo8bit",
    ),
    "frontend/test_brevitas_loops.py::test_last_states_of_layers_are_read": ("<lambda>-options3",),
    "frontend/test_brevitas_loops.py::test_mapped_recurrent_layer_equals_its_graph_in_each_stage": ("lstm",),
    "frontend/test_brevitas_loops.py::test_recurrent_layer_equals_brevitas_in_each_step_of_any_length": (
        "lstm, coupled, ranges alike",
    ),
    "frontend/test_brevitas_loops.py::test_states_begin_as_the_codes_of_what_is_given": ("start0",),
    "frontend/test_loop_capture.py::test_recurrent_model_equals_pytorch_for_any_number_of_steps": (
        "QuantGRU-*",
        "QuantLSTM-options2-True",
    ),
    "frontend/test_loop_capture.py::test_recurrent_model_is_lowered_with_its_body": ("QuantGRU", "QuantRNN"),
    "frontend/test_onnx.py::test_case_is_built_and_equal_or_refused_by_name": (
        "ONNX (QDQ)-[!be]*",
        "ONNX (QDQ)-branches, per channel",
        "ONNX (QONNX)-[!e]*",
        "ONNX (QOperator)-*",
    ),
    "frontend/test_onnx.py::test_files_of_both_exporters_come_in": ("False",),
    "frontend/test_pt2e.py::test_program_equals_its_own_evaluation": ("float_weights", "tensor2", "xnnpack_int8"),
    "frontend/test_support.py::test_examples_equal_reference_in_rtl": ("0",),
    "hdl/link/test_driver.py::test_driver_loads_programs_into_the_gateware": ("Harmful",),
    "hdl/link/test_driver.py::test_driver_runs_the_gateware": ("12-5-*", "30-250-Harmful"),
    "hdl/link/test_flash.py::test_device_prefers_the_program_of_the_link": ("1", "43?", "500"),
    "hdl/link/test_ftdi.py::test_ftdi_device_answers_the_driver_and_the_flash_hears_nothing": ("24000000-*",),
    "hdl/link/test_ftdi.py::test_ftdi_device_bears_bits_too_many_and_too_few": ("1",),
    "hdl/link/test_linked_engine.py::test_device_answers_images_back_to_back": (
        "1-1-1-*",
        "12-5-7-*",
        "33-3-240-none-none",
        "7-240-240-random-random",
    ),
    "hdl/link/test_program.py::test_device_runs_the_program_that_was_loaded": (
        "1-1-0-1-*",
        "12-5-3-7-*",
        "3-700-0-24-random-random",
        "7-24?-*-none-none",
    ),
    "hdl/link/test_rates.py::test_driver_finds_the_fastest_rate": ("able-4-0", "refusing-16-1"),
    "hdl/link/test_shared.py::test_shared_engine_refuses_what_is_wrong": ("11-3", "6-2"),
    "hdl/link/test_spi.py::test_spi_device_answers_images_through_its_pins": ("5", "7"),
    "hdl/link/test_spi.py::test_spi_device_answers_whatever_the_transfers_are": ("0-1", "7-3"),
    "hdl/link/test_uart.py::test_receiver_reads_a_line_that_is_off_and_whose_edges_jitter": ("5-*", "16-*"),
    "hdl/link/test_uart.py::test_uart_device_answers_through_its_pins": ("16000000-1.02", "12000000-0.98", "6000000-*"),
    "hdl/link/test_uart.py::test_uart_device_comes_back_to_the_faster_rate_whatever_the_token": ("1", "139"),
    "hdl/link/test_uart.py::test_uart_device_speaks_the_rate_of_its_host": ("divisors1",),
    "hdl/shared/test_counters.py::test_records_take_what_is_predicted_and_their_waits": (
        "dsp-*",
        "pairs, streaming-random-none",
        "slices-none-none",
    ),
    "hdl/shared/test_shared_engine.py::test_programs_give_the_golden_output_in_the_cycles_of_the_schedule": (
        "blocks, streaming-7",
        "dsp-0",
        "joined-0",
        "late-0",
        "magnitudes-0",
        "mixed-0",
        "narrow steps-7",
        "nibbles, apart, streaming-7",
        "pairs, streaming-7",
        "parts, apart, streaming-7",
        "slices, streaming-7",
        "stepped-8",
        "steps in blocks-10",
        "ties*-0",
        "wide-0",
    ),
    "hdl/test_arithmetic.py::test_dot_product_of_ecp5_cells_equals_raw_sums": (
        "formats*-9",
        "formats0-*",
        "formats1-16",
    ),
    "hdl/test_cells.py::test_dsp_block_equals_the_plain_products": ("*-3-*", "signed(8)-unsigned(8)-1-*"),
    "hdl/test_cores.py::test_core_on_axi_stream_equals_the_ir": ("padded_bipolar",),
    "hdl/test_cores.py::test_core_on_wishbone_equals_the_ir": ("wide_input",),
    "hdl/test_engine.py::test_engine_equals_ir_and_prediction": ("*-none-none", "*-random-random"),
    "hdl/test_engine.py::test_engine_equals_ir_for_random_networks": ("[!7]*",),
    "hdl/test_engines.py::test_engine_equals_golden_and_cycle_model": (
        "*-none-none",
        "*-bursts-bursts",
        "!matmul_[d-z]*-bursts-bursts",
        "!window_[c-z]*-bursts-bursts",
        "!norm_wide-bursts-bursts",
    ),
    "hdl/test_matrix_product.py::test_matrix_product_equals_golden_and_cycle_model": ("*-none-none", "*-random-random"),
    "hdl/test_pairwise.py::test_pairwise_equals_golden_and_cycle_model": ("*-none-none", "*-random-random"),
    "hdl/test_requantizer_table.py::test_requantizer_equals_golden_for_every_sum": ("*-1", "search*-3", "double-3"),
    "hdl/test_schedules.py::test_accelerator_with_large_ram_equals_ir_and_prediction": ("random-bursts",),
    "hdl/test_schedules.py::test_readers_of_a_fork_have_buffers_on_a_large_device": ("random-bursts",),
    "hdl/test_states.py::test_state_comes_back_in_each_step_and_begins_anew": (
        "20-4-*",
        "4-1-*",
        "1-*",
        "300-1-40-2-False-True",
    ),
    "hdl/test_window.py::test_window_never_reads_what_it_writes": ("*-random-alternating",),
    "mapping/shared/test_fusion.py::test_layers_that_take_turns_compute_what_they_do_one_after_the_other": (
        "[!d]*-16x4x4",
        "s[!e]*-4x2x4",
        "depthwise-8x2x8",
    ),
    "mapping/test_loops.py::test_random_recurrent_network_equals_its_graph_in_hardware": ("12", "19"),
    "mapping/test_loops.py::test_sequences_that_take_turns_share_engines_that_would_wait": ("2",),
    "mapping/test_schedule.py::test_depths_never_hang_under_random_stalls": (
        "concatenated-None",
        "rescaled-*",
        "residual*-None",
    ),
    "nn/test_attention.py::test_quantized_encoder_layer_is_near_float_and_exact_in_integers": (
        "first_relu_0.0",
        "last_gelu_0.0",
    ),
    "nn/test_examples.py::test_example_is_right_on_the_whole_test_set": ("mnist_mlp",),
    "nn/test_pairs.py::test_block_lowers_exactly": ("*-8-8",),
    "passes/test_factors.py::test_random_decimal_scales_are_never_refused": ("[0-3]",),
    "sim/test_attention.py::test_product_in_rtl_equals_ir_and_prediction": ("softmax_of_heads",),
    "sim/test_benches.py::test_bench_engine_catches_mutant": ("InvertedOutput*",),
    "sim/test_benches.py::test_bench_engine_passes": ("matmul_folded",),
    "sim/test_networks.py::test_network_in_rtl_equals_ir_and_prediction": (
        "bordered_bipolar",
        "depthwise",
        "rescaled",
        "residual_of_sums",
        "squeeze_and_excitation",
    ),
    "sim/test_rescaled.py::test_residual_network_equals_its_graph": ("streaming",),
    "sim/test_simulate.py::test_simulate_accelerator_equals_ir_and_prediction": ("mixed",),
    "sim/test_simulate.py::test_simulate_pins_survives_faults": ("spi-faults", "uart-slow-faults"),
    "sim/test_simulate.py::test_simulate_pins_survives_faults_on_a_usb_of_another_clock": ("usb",),
    "written/test_written.py::test_network_becomes_what_the_table_says": (
        *("BinaryConnect", "BinaryNet, perceptron", "XNOR-Net in forward", "Bi-Real, plain", "ReActNet, plain"),
        *("IR-Net", "BNN+", "DoReFa, 2 and 2 bits", "PACT by .item()", "LSQ, 2 bits", "TWN", "WRPN", "HAWQ"),
        *("sign in place", "x + (q - x).detach()", "scale: property", "parametrize", "weight.data in forward"),
        *("dynamic range", "BitNet b1.58", "eager QAT, converted", "FX QAT", "FakeQuantize in forward"),
    ),
    "written/test_written.py::test_network_equals_reference_in_rtl": (
        "BNN+",
        "weight.data in forward",
        "eager QAT, converted",
    ),
}


@cache
def _all_marks() -> dict[str, frozenset[str]]:
    """The marks of both tables, by folder, file, or file::test."""
    found = {place: frozenset(marks) for place, marks in MARKS.items()}
    return found | {place: found.get(place, frozenset()) | {"long"} for place in LONG}


def marks_of(test: str) -> set[str]:
    """Return the marks of a test, named by its id below tests, without the parameters."""
    found = _all_marks()
    # The test itself, its file, and the folders around that.
    file, parts = test.partition("::")[0], test.split("/")
    places = {test, file, *("/".join(parts[:count]) for count in range(1, len(parts)))}
    return {mark for place in places for mark in found.get(place, ())}


def is_kept(test: str, row: str) -> bool:
    """Whether `make test` runs a row, by its id, of the table of a test; it runs all that no pattern leaves out."""
    patterns = ROWS.get(test, ("*",))
    kept = [pattern for pattern in patterns if not pattern.startswith("!")] or ["*"]
    return any(fnmatchcase(row, pattern) for pattern in kept) and not any(
        fnmatchcase(row, pattern[1:]) for pattern in patterns if pattern.startswith("!")
    )


def covering(names: Iterable[Any], kept: Collection[Any]) -> list[Any]:
    """Return the parameters of a table, of which all but those in `kept` are `long`."""
    rows = list(names)
    assert set(kept) <= set(rows)
    return [
        pytest.param(*(row if isinstance(row, tuple) else (row,)), marks=() if row in kept else pytest.mark.long)
        for row in rows
    ]
