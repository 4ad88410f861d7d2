"""What tests cost: the marks of whole folders, files and single tests. `tests/marking.py` checks that they are true."""

from __future__ import annotations

# Mark --> what it means.
MEANINGS: dict[str, str] = {
    "rtl": "compiles or runs a simulator of hardware",
    "synth": "synthesizes with yosys",
    "pnr": "places and routes",
    "slow": "takes longer than some 3 seconds, or starts other commands that do",
}

# Folder, file, or file::test, below tests --> its marks.
MARKS: dict[str, tuple[str, ...]] = {
    "benchmarks": ("rtl", "synth", "pnr", "slow"),
    "flow/test_bitstream.py": ("synth", "pnr", "slow"),
    "flow/test_carries.py": ("synth",),
    "flow/test_chain.py": ("rtl", "synth", "slow"),
    "flow/test_compiled.py::test_hardware_that_cannot_be_loaded_is_a_message": ("rtl",),
    "flow/test_counters.py": ("rtl", "slow"),
    "flow/test_denoise.py": ("rtl", "slow"),
    "flow/test_drawn_networks.py": ("rtl", "slow"),
    "flow/test_end_to_end.py": ("rtl", "synth", "pnr", "slow"),
    "flow/test_floorplan.py::test_places_of_the_85f_are_those_of_the_device": ("pnr",),
    "flow/test_foreign_folder.py": ("synth",),
    "flow/test_fusion.py": ("rtl", "synth", "slow"),
    "flow/test_measuring.py": ("rtl", "synth", "pnr", "slow"),
    "flow/test_netlist.py": ("rtl", "synth", "pnr", "slow"),
    "flow/test_orders.py": ("rtl", "slow"),
    "flow/test_output_registers.py::test_synthesis_leaves_no_register_behind_a_block_ram": ("synth",),
    "flow/test_place.py": ("synth", "pnr"),
    "flow/test_processes.py::test_run_rejects_program_that_is_not_there": ("synth",),
    "flow/test_random_networks.py::test_random_network_equals_reference_in_rtl": ("rtl", "synth", "slow"),
    "flow/test_rows.py::test_rows_equal_reference_in_rtl": ("rtl", "synth", "slow"),
    "flow/test_running.py": ("rtl", "synth", "pnr", "slow"),
    "flow/test_slices.py::test_slices_equal_reference_in_rtl": ("rtl", "synth", "slow"),
    "flow/test_sources.py::test_sources_hash_changes_with_each_module_that_takes_part": ("slow",),
    "flow/test_style.py": ("rtl", "synth", "pnr", "slow"),
    "flow/test_synthesis.py": ("synth",),
    "flow/test_toolchain.py::test_run_yosys_rejects_mistake_with_its_own_words": ("synth",),
    "flow/test_toolchain.py::test_run_yosys_runs_in_the_folder": ("synth",),
    "flow/test_toolchain.py::test_yowasp_tools_are_compiled_once": ("pnr",),
    "flow/test_transposed.py::test_transposed_convolutions_equal_reference_in_rtl": ("rtl", "synth", "slow"),
    "flow/test_unneeded.py": ("synth",),
    "flow/test_virtual.py": ("rtl",),
    "flow/test_wide_numbers.py::test_wide_numbers_equal_reference_in_rtl": ("rtl", "synth", "slow"),
    "flow/test_wide_numbers.py::test_wide_numbers_equal_reference_up_to_golden_stages": ("slow",),
    "frontend/test_agreement.py::test_agreement_of_a_model_is_up_to_rounding": ("slow",),
    "frontend/test_brevitas.py::test_case_is_built_and_equal_or_refused_by_name": ("slow",),
    "frontend/test_brevitas.py::test_example_equals_brevitas_in_rtl": ("rtl", "synth", "slow"),
    "frontend/test_brevitas.py::test_page_counts_the_cases_as_they_are": ("slow",),
    "frontend/test_brevitas.py::test_tfc_equals_brevitas_in_rtl": ("rtl", "synth", "slow"),
    "frontend/test_conventions.py::test_half_way_points_are_the_same_in_rtl": ("rtl", "synth", "slow"),
    "frontend/test_pt2e.py::test_commands_of_the_page_run": ("slow",),
    "frontend/test_pt2e.py::test_operators_are_registered_when_a_file_needs_them": ("slow",),
    "frontend/test_pt2e.py::test_programs_of_the_page_run": ("rtl", "synth", "slow"),
    "frontend/test_pt2e.py::test_program_equals_reference_in_rtl": ("rtl", "synth", "slow"),
    "frontend/test_torch_cases.py::test_page_counts_the_cases_as_they_are": ("slow",),
    "frontend/test_torch_cases.py::test_what_is_built_stays_built": ("slow",),
    "frontend/test_tflite.py::test_tflite_network_equals_reference_in_rtl": ("rtl", "synth", "slow"),
    "frontend/test_support.py::test_examples_equal_reference_in_rtl": ("rtl", "synth", "slow"),
    "frontend/test_support.py::test_support_matrix_is_the_committed_one": ("slow",),
    "frontend/test_support.py::test_support_matrix_says_what_each_row_means": ("slow",),
    "hdl": ("rtl",),
    "hdl/shared/test_ecp5.py": ("slow",),
    "ir/test_text.py::test_expressions_round_trip": ("slow",),
    "mapping/shared/test_accelerator.py": ("slow",),
    "mapping/shared/test_chain.py": ("slow",),
    "mapping/shared/test_fusion.py": ("slow",),
    "mapping/test_cost.py": ("synth", "pnr"),
    "mapping/test_mapper.py::test_mapper_rejects_a_network_that_does_not_fit": ("slow",),
    "mapping/test_mapper.py::test_mapping_of_mlp_reaches_the_bound_of_its_weight_memory": ("slow",),
    "mapping/test_mapper.py::test_mapping_stays_in_its_budget_of_flip_flops": ("slow",),
    "mapping/test_mapper.py::test_mapping_with_target_is_the_smallest_that_reaches_it": ("slow",),
    "mapping/test_schedule.py::test_depths_never_hang_under_random_stalls": ("slow",),
    "nn/test_examples.py": ("slow",),
    "passes/test_factors.py::test_any_thousandths_are_added_exactly": ("slow",),
    "sim": ("rtl",),
    "test_lint.py": ("slow",),
    "test_readme.py": ("rtl", "synth", "pnr", "slow"),
    "test_wheel.py": ("slow",),
}


def marks_of(test: str) -> set[str]:
    """Return the marks of a test, named by its id below tests, without the parameters."""
    places = [place for place in MARKS if f"{test}/".startswith((f"{place}/", f"{place}::"))]
    return {mark for place in places for mark in MARKS[place]}
