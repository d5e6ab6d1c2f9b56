//! The guarantees of a driver to an event loop, tested through the `Driver` trait over real sockets.
//!
//! Each test is written once and runs on each driver; few tests depend on the driver. Tests use loopback, with ports
//! that the kernel chooses, or a directory of their own. Read first: `harness.rs`.

mod harness;
mod which;

mod accept;
mod close;
mod connect;
mod crowds;
mod datagram;
mod fairness;
mod file;
mod limits;
mod pause;
mod quiet;
mod random;
mod receive;
mod reset;
mod send;
mod shutdown;
mod token;
mod unix_datagram;
mod vsock;
mod wake;
mod watch;

/// Lists the tests, and creates one of each for each driver.
macro_rules! drivers {
    ($($module:ident { $($name:ident),* $(,)? })*) => {
        mod epoll { tests! { crate::driver::which::Which::Epoll, $($module { $($name),* })* } }
        mod uring { tests! { crate::driver::which::Which::Uring, $($module { $($name),* })* } }
    };
}

macro_rules! tests {
    ($driver:path, $($module:ident { $($name:ident),* })*) => {
        $(mod $module {
            $(#[test]
            fn $name() {
                $driver.run(crate::driver::$module::$name);
            })*
        })*
    };
}

drivers! {
    accept {
        an_accepted_connection_has_the_address_of_its_peer,
        a_bound_unix_peer_has_its_path_as_address,
        accepts_per_turn_are_bounded_and_do_not_delay_other_sockets,
        a_stopped_listener_leaves_connections_in_the_backlog,
        accepting_can_stop_between_two_connections_of_one_turn,
        a_closed_listener_accepts_nothing,
        two_drivers_that_share_a_listener_accept_each_connection_once,
        a_shared_listener_stays_open_on_the_other_driver,
        accepting_fails_without_descriptors_and_resumes_on_request,
    }
    close {
        an_orderly_close_ends_the_stream_after_the_sent_bytes,
        an_orderly_close_delivers_the_bytes_in_the_kernels_buffer,
        close_with_reset_resets_the_connection,
        closing_with_unread_bytes_always_resets,
        a_closed_socket_reports_nothing,
        bytes_for_closed_sockets_keep_no_buffers,
        a_driver_that_is_dropped_closes_its_sockets,
    }
    connect {
        connect_works_over_ipv4_and_ipv6,
        connect_works_over_unix_sockets,
        connect_uses_the_requested_local_address,
        connect_uses_the_requested_local_port,
        an_unusable_local_address_fails_the_connect,
        a_refused_connection_is_reported_once_and_nothing_follows,
        a_send_before_the_connection_is_made_waits_for_it,
        a_connection_that_is_reset_at_once_fails,
        a_socket_closed_when_it_becomes_writable_reports_nothing,
        a_connecting_socket_that_is_closed_reports_nothing,
    }
    datagram {
        a_datagram_has_its_source_its_local_address_its_mark_and_its_lifetime,
        a_response_leaves_from_the_address_that_the_query_came_to,
        a_socket_of_ipv6_has_peers_of_ipv4,
        an_empty_datagram_has_a_place_in_its_batch,
        a_group_that_another_socket_has_joined_brings_nothing,
        a_socket_without_facts_reports_the_source_alone,
        datagrams_of_100_000_addresses_have_their_sources,
        empty_datagrams_are_reported_as_any_other,
        a_datagram_that_is_too_long_is_truncated_and_marked,
        a_port_without_a_socket_is_reported_and_the_socket_stays_usable,
        a_datagram_that_cannot_be_sent_is_dropped_alone,
        a_flood_of_reports_loses_no_datagram,
        a_run_is_sent_as_single_datagrams,
        joined_datagrams_are_reported_as_a_run,
        a_run_longer_than_64_kib_is_received_whole,
        the_kernels_drops_are_counted,
        a_connected_socket_receives_from_its_peer_alone,
        a_paused_socket_receives_nothing_and_resumes,
        a_paused_driver_receives_no_datagrams,
        a_closed_socket_reports_no_datagrams,
        a_payload_that_is_kept_is_not_overwritten,
        a_batch_grows_with_the_datagrams_that_wait,
        short_datagrams_come_in_large_batches_where_long_ones_may_come,
        short_datagrams_that_are_kept_are_not_overwritten,
        a_batch_may_outlive_its_socket,
        a_forged_report_that_the_path_is_narrow_changes_nothing,
        a_flood_of_forged_reports_loses_no_datagram,
        a_group_may_be_named_twice,
        a_group_of_one_source_drops_the_datagrams_of_others,
        a_broadcast_leaves_by_choice_alone,
        control_messages_come_and_go_as_bytes,
    }
    unix_datagram {
        a_unix_datagram_has_the_name_of_its_sender_and_a_response_goes_there,
        a_datagram_that_cannot_reach_a_unix_socket_is_dropped_alone,
        descriptors_come_along_and_those_above_the_limit_are_closed,
        the_process_of_a_sender_is_reported_on_request,
        a_full_queue_loses_the_datagrams_of_its_receiver_alone,
        a_connected_unix_socket_waits_for_its_peer,
        a_file_of_a_unix_datagram_socket_is_replaced_once_its_process_has_left,
    }
    vsock {
        a_vsock_listener_has_its_port,
        vsock_streams_connect_and_carry_bytes,
    }
    file {
        files_and_memory_arrive_in_queue_order,
        a_blocked_file_resumes_when_the_peer_reads,
        a_file_that_is_shorter_than_its_region_is_an_error,
        a_limit_of_zero_bytes_still_sends,
        a_file_that_cannot_be_read_is_an_error,
        the_bytes_before_a_file_leave_with_it,
    }
    pause {
        bytes_that_arrive_while_paused_are_reported_on_resume,
        a_pause_within_a_turn_applies_to_the_rest_of_the_turn,
        sending_continues_while_receives_are_paused,
        accepting_continues_while_receives_are_paused,
        a_failure_is_reported_while_receives_are_paused,
        sockets_closed_or_stopped_while_paused_report_nothing_on_resume,
        bytes_reported_while_paused_are_bounded_and_none_are_lost,
        all_sockets_receive_again_on_resume,
        small_writes_while_paused_are_bounded_as_well,
    }
    quiet {
        a_new_connection_is_quiet,
        unwanted_bytes_are_quiet,
        a_half_closed_connection_is_quiet,
        a_reset_after_a_half_close_is_quiet,
        a_send_that_waits_is_quiet,
        a_driver_with_paused_receives_is_quiet,
    }
    watch {
        a_watched_end_behind_unread_bytes_is_reported_once,
        an_end_that_came_before_the_watch_is_reported,
        a_watched_end_that_is_received_is_reported_behind_it,
        a_watched_end_is_reported_to_a_socket_that_has_stopped_receiving,
    }
    receive {
        a_long_stream_arrives_whole,
        receives_grow_while_they_are_full_and_shrink_again,
        a_receive_is_larger_where_many_bytes_are_missing,
        urgent_bytes_are_bytes_like_any_other,
        a_stopped_socket_reports_nothing_and_loses_nothing,
        repeated_stops_report_at_most_one_receive_and_lose_nothing,
        stopping_within_a_long_stream_keeps_the_rest,
        an_end_that_arrives_with_bytes_is_reported_after_them_once,
        an_end_that_arrives_while_stopped_is_reported_on_resume,
        sending_works_after_the_peer_has_ended,
        receiving_works_after_our_shutdown,
        a_turn_that_is_cut_short_loses_nothing,
        kept_bytes_are_not_overwritten_by_later_receives,
    }
    reset {
        bytes_before_a_reset_are_reported_first,
        a_reset_is_reported_to_a_receiving_socket,
        a_failure_is_the_last_report_of_a_socket_that_does_not_receive,
        a_reset_after_the_end_is_reported_once,
        a_unix_peer_that_closes_with_unread_bytes_breaks_the_connection,
        a_reset_ends_a_blocked_send,
        a_reset_in_a_bidirectional_transfer_is_reported_before_any_end,
        a_reset_that_a_send_finds_first_is_reported_and_is_no_end,
        a_connection_may_break_in_both_directions_at_once,
    }
    send {
        more_parts_than_fit_one_call_arrive_in_order,
        a_blocked_send_resumes_at_the_right_byte,
        a_call_sends_at_most_bytes_max,
        sent_bytes_use_no_memory,
        unflushed_bytes_are_not_sent,
        sending_to_a_closed_peer_fails_without_sigpipe,
        sending_after_our_shutdown_fails,
        both_directions_make_progress_at_the_same_time,
    }
    token {
        an_old_token_has_no_effect,
        an_unknown_token_has_no_effect,
        a_reused_slot_gets_no_report_of_its_previous_occupant,
        the_state_of_a_socket_ends_with_it,
        a_socket_of_another_driver_is_refused,
    }
    wake {
        another_thread_ends_a_wait,
        a_wake_before_the_wait_is_not_lost,
        a_wake_between_wait_and_next_is_not_lost,
        many_wakes_are_one,
        no_wake_is_lost_among_many_threads_and_a_busy_socket,
        a_wake_after_the_driver_is_gone_does_nothing,
        a_wait_ends_with_its_timeout,
    }
    crowds {
        bytes_and_ends_of_many_sockets_arrive_after_one_late_turn,
        sends_to_many_sockets_between_two_waits_arrive,
        many_sockets_closed_at_once_are_closed,
        a_long_backlog_is_accepted,
        connections_that_arrive_while_a_listener_closes_leak_nothing,
        more_sockets_than_buffers_all_receive,
        long_streams_of_more_sockets_than_buffers_arrive_whole,
        a_light_socket_does_not_starve_among_busy_ones,
        clients_that_connect_and_reset_in_a_loop_leak_nothing,
    }
    fairness {
        a_light_socket_reports_before_heavy_ones_that_were_first,
        heavy_sockets_take_turns,
        a_new_connection_comes_before_heavy_sockets,
        a_light_socket_reports_before_room_for_a_heavy_one,
    }
    shutdown {
        a_driver_dropped_with_operations_in_flight_leaks_nothing,
    }
    limits {
        creating_a_driver_without_descriptors_fails_and_leaks_nothing,
        accepting_stops_when_descriptors_run_out_and_resumes_on_request,
        connect_without_descriptors_fails_and_other_sockets_continue,
        without_locked_memory_a_driver_works_or_returns_an_error,
        only_the_io_uring_driver_fails_where_io_uring_is_refused,
    }
    random {
        random_operations_lose_nothing,
    }
}
