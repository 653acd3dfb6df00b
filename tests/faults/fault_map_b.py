"""Which tests show which of the reported faults B26 to B70, for readers; test_fault_map_b keeps it true."""

SHOWN_BY = {
    "B26": [
        "test_b26_a_client_that_leaves_before_the_first_event_ends_its_turn",
        "test_b26_over_plain_http_the_upstream_sees_it_too",
        "test_b26_a_client_that_leaves_in_the_queue_for_a_socket_sends_nothing",
    ],
    "B27": [
        "test_b27_headers_describe_the_bytes_that_come",
        "test_b27_answers_without_a_body_have_none",
        "test_b27_request_headers_of_the_connection_stay_behind",
    ],
    "B29": [
        "test_b29_a_turn_that_may_have_run_is_run_once_per_request",
        "test_b29_a_reused_socket_that_was_dead_is_worth_one_repeat",
        "test_b29_what_was_refused_is_tried_again_without_the_client",
        "test_b29_nothing_is_repeated_after_the_first_event",
    ],
    "B32": [
        "test_b32_another_key_or_account_is_another_conversation",
    ],
    "B34": [
        "test_b34_the_storage_flag_goes_up_as_it_came",
    ],
    "B35": [
        "test_b35_separators_inside_texts_split_nothing",
        "test_b35_what_is_passed_on_is_the_same_bytes",
        "test_b35_the_sdk_for_node_reads_the_same_text",
    ],
    "B37": [
        "test_b37_the_delta_is_everything_behind_the_answer",
    ],
    "B39": [
        "test_b39_a_long_silence_with_pongs_is_no_death",
        "test_b39_no_pong_and_no_data_is_found_out",
        "test_b39_our_own_pause_is_not_held_against_the_upstream",
    ],
    "B40": [
        "test_b40_a_parent_of_ours_that_is_gone_is_made_good",
        "test_b40_a_parent_of_the_clients_own_is_the_clients_to_know",
        "test_b40_an_unrelated_refusal_is_not_tried_again",
        "test_b40_an_unrelated_refusal_of_a_delta_gets_one_full_verdict",
    ],
    "B41": [
        "test_b41_a_silent_turn_holds_up_nobody",
        "test_b41_the_same_turn_beside_a_silent_one_is_not_held_up_either",
    ],
    "B46": [
        "test_b46_a_full_resend_is_the_clients_own_list",
        "test_b46_with_the_socket_alive_the_level_decides",
    ],
    "B47": [
        "test_b47_the_answer_has_both_finished_items_once",
    ],
    "B49": [
        "test_b49_what_is_kept_grows_with_new_items_only",
        "test_b49_the_caps_hold_and_the_oldest_go_first",
        "test_b49_an_evicted_conversation_costs_one_full_turn",
        "test_b49_an_idle_gateway_lets_go_of_everything",
    ],
    "B51": [
        "test_b51_every_event_is_whole_however_the_stream_ends",
        "test_b51_a_stream_that_the_shutdown_breaks_ends_with_a_whole_event",
    ],
    "B54": [
        "test_b54_path_and_query_are_joined_once",
        "test_b54_other_paths_keep_every_byte",
        "test_b54_both_loopback_addresses_answer",
    ],
    "B55": [
        "test_b55_one_trust_serves_both_transports",
        "test_b55_without_trust_both_are_refused",
        "test_b55_another_hosts_certificate_is_refused_by_both",
        "test_b55_a_client_certificate_is_presented_by_both",
        "test_b55_a_client_certificate_that_is_missing_is_missed_by_both",
    ],
    "B57": [
        "test_b57_an_upstream_without_websocket_costs_a_dial_or_two",
        "test_b57_after_the_memory_time_there_is_one_new_probe",
        "test_b57_many_turns_at_once_share_one_probe",
        "test_b57_a_wrong_key_is_not_taken_for_no_websocket",
        "test_b57_sockets_that_are_accepted_and_closed_are_given_up",
    ],
    "B58": [
        "test_b58_a_refused_upgrade_and_turn_give_the_upstreams_own_answer",
        "test_b58_where_only_the_upgrade_is_blocked_the_turn_is_served",
        "test_b58_a_wrong_key_is_answered_by_the_upstream_each_time",
        "test_b58_an_upstream_that_cannot_be_reached_says_why",
    ],
    "B59": [
        "test_b59_a_clock_in_the_instructions_gives_no_wrong_answer",
    ],
    "B61": [
        "test_b61_a_socket_asked_of_us_is_refused_at_once",
        "test_b61_a_plain_get_is_passed_through",
    ],
    "B62": [
        "test_b62_a_busy_lane_is_never_given_a_second_turn",
        "test_b62_after_a_refused_turn_the_next_needs_two_frames_at_most",
        "test_b62_an_error_without_a_lane_ends_who_it_is_for",
        "test_b62_a_lane_in_an_http_body_is_the_upstreams_to_judge",
    ],
    "B63": [
        "test_b63_running_answers_are_finished_after_the_signal",
        "test_b63_when_the_grace_is_over_a_stream_ends_as_a_failure",
        "test_b63_a_second_signal_ends_it_at_once",
    ],
    "B64": [
        "test_b64_numbers_and_escapes_go_up_as_they_were_written",
        "test_b64_odd_bodies_get_the_verdict_of_plain_http",
        "test_b64_a_duplicate_key_goes_up_byte_for_byte",
    ],
    "B70": [
        "test_b70_labels_of_turns_are_bounded_by_the_code",
        "test_b70_odd_clients_add_no_series",
    ],
}
