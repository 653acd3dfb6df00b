"""Which tests show which of the reported faults B01 to B24, for readers; test_fault_map_a keeps it true."""

SHOWN_BY = {
    "B01": [
        "test_b01_an_empty_closing_list_costs_no_item",
    ],
    "B02": [
        "test_b02_an_abandoned_answer_reaches_nobody_else",
        "test_b02_the_same_client_gets_a_clean_socket_while_the_old_answer_goes_on",
    ],
    "B05": [
        "test_b05_a_tool_result_continues_its_own_branch",
        "test_b05_interleaved_branches_keep_their_own_parents",
    ],
    "B07": [
        "test_b07_a_cut_stream_ends_as_a_failure",
        "test_b07_a_cut_json_answer_is_an_error",
        "test_b07_a_close_after_the_end_adds_nothing",
    ],
    "B08": [
        "test_b08_changed_settings_reach_the_upstream",
        "test_b08_strict_settings_make_any_change_a_full_turn",
        "test_b08_tools_given_as_the_first_item_are_part_of_the_history",
    ],
    "B09": [
        "test_b09_a_shortened_history_replaces_the_old_one",
    ],
    "B10": [
        "test_b10_a_refused_interruption_is_relayed_and_forgotten",
        "test_b10_error_events_that_lack_fields_keep_their_status",
    ],
    "B12": [
        "test_b12_compressed_bodies_are_understood",
        "test_b12_an_unknown_coding_is_a_415",
        "test_b12_a_cut_body_is_a_400",
        "test_b12_a_body_that_explodes_is_refused_in_flat_memory",
        "test_b12_other_endpoints_get_bytes_and_header_as_they_came",
    ],
    "B13": [
        "test_b13_the_frame_limit_to_the_byte",
        "test_b13_the_default_limit_is_that_of_the_api",
        "test_b13_a_long_conversation_crosses_the_limit_and_lives_on",
        "test_b13_a_lower_limit_is_learned_from_one_close",
        "test_b13_a_delta_that_is_too_large_does_not_cost_the_parent",
        "test_b13_a_1009_in_the_middle_of_an_answer_is_no_lesson",
    ],
    "B14": [
        "test_b14_replayed_items_are_compared_by_meaning",
        "test_b14_exact_matching_is_strict_on_what_the_model_may_see",
    ],
    "B16": [
        "test_b16_a_forgotten_parent_costs_one_hidden_resend",
        "test_b16_a_failing_resend_has_the_last_word",
        "test_b16_an_upstream_that_closes_after_its_errors_gets_the_resend_on_a_new_socket",
    ],
    "B17": [
        "test_b17_a_refusal_before_output_is_the_answer_of_plain_http",
        "test_b17_an_error_after_the_head_is_an_event_as_the_upstream_sent_it",
        "test_b17_an_error_in_mid_answer_is_a_status_for_a_client_that_waits_for_json",
        "test_b17_the_head_waits_for_the_first_event_without_limit",
    ],
    "B18": [
        "test_b18_bodies_far_above_a_megabyte_are_taken",
        "test_b18_the_body_limit_to_the_byte",
        "test_b18_the_default_cap_is_far_above_what_clients_send",
        "test_b18_an_announced_length_above_the_cap_is_refused_unread",
        "test_b18_an_endless_body_is_refused_without_keeping_it",
    ],
    "B19": [
        "test_b19_references_to_known_items_are_history",
        "test_b19_other_references_go_up_untouched",
    ],
    "B20": [
        "test_b20_the_output_of_any_tool_continues_its_call",
        "test_b20_calls_of_many_kinds_are_answered_in_one_delta",
    ],
    "B21": [
        "test_b21_sockets_are_rotated_before_the_limit",
        "test_b21_a_limit_met_unprepared_is_hidden",
        "test_b21_a_socket_closed_between_turns_costs_one_delta",
        "test_b21_the_default_age_leaves_a_margin_before_the_hour",
    ],
    "B22": [
        "test_b22_a_reset_at_the_frame_ends_the_wait_at_once",
        "test_b22_a_reused_socket_that_was_dead_is_repeated_once_at_once",
        "test_b22_an_upstream_that_stops_reading_ends_the_write_in_time",
        "test_b22_a_reset_in_the_middle_of_a_large_frame_ends_the_write_at_once",
    ],
    "B24": [
        "test_b24_transport_fields_stay_out_of_the_frame",
        "test_b24_unknown_fields_stay_on_deltas",
        "test_b24_a_query_goes_up_as_it_is",
        "test_b24_turns_with_another_query_have_another_socket",
        "test_b24_a_query_that_is_new_each_time_opens_no_socket_each_time",
        "test_b24_what_a_socket_cannot_do_goes_over_http_unchanged",
        "test_b24_the_clients_own_parent_is_honoured_as_given",
        "test_b24_an_unknown_parent_of_the_clients_is_the_upstreams_to_refuse",
        "test_b24_an_upstream_that_takes_stream_options_over_http_only_still_answers",
        "test_b24_a_refused_field_has_the_answer_of_http",
        "test_b24_only_a_field_of_the_request_itself_is_a_matter_of_transport",
    ],
}
