//! What an event loop may rely on: a driver, driven through its seam over real sockets.
//!
//! Each test is written once and played on each driver; hardly any knows on which. Everything happens on loopback, at
//! ports that the kernel chooses, or in a directory of its own. Read first: `harness.rs`.

mod directory;
mod harness;
mod which;

mod accept;
mod close;
mod connect;
mod crowds;
mod fairness;
mod farewell;
mod file;
mod hold;
mod limits;
mod quiet;
mod random;
mod receive;
mod reset;
mod send;
mod token;
mod wake;

/// Lists the tests, and makes one of each on each driver.
macro_rules! drivers {
    ($($room:ident { $($name:ident),* $(,)? })*) => {
        mod epoll { tests! { crate::which::Which::Epoll, $($room { $($name),* })* } }
        mod uring { tests! { crate::which::Which::Uring, $($room { $($name),* })* } }
    };
}

macro_rules! tests {
    ($driver:path, $($room:ident { $($name:ident),* })*) => {
        $(mod $room {
            $(#[test]
            fn $name() {
                $driver.play(crate::$room::$name);
            })*
        })*
    };
}

drivers! {
    accept {
        an_accepted_connection_comes_with_the_address_of_its_peer,
        the_peer_of_a_unix_socket_has_a_path_if_it_was_bound_to_one,
        many_connections_are_accepted_a_bounded_number_a_turn_and_others_get_their_say,
        a_listener_that_is_told_to_stop_leaves_connections_in_the_backlog,
        accepting_can_be_stopped_between_two_connections_of_one_turn,
        a_listener_that_was_closed_accepts_nobody,
        two_drivers_may_share_a_listener_and_each_connection_goes_to_one,
        a_shared_listener_goes_on_where_it_was_not_closed,
        without_a_descriptor_accepting_fails_and_goes_on_when_told_to,
    }
    close {
        an_orderly_close_ends_the_stream_after_what_was_sent,
        an_orderly_close_delivers_what_the_kernel_still_holds,
        a_cut_connection_is_reset,
        closing_with_bytes_unread_resets_whatever_was_asked_for,
        nothing_is_told_of_a_socket_after_it_was_closed,
        what_came_for_those_who_were_let_go_of_takes_no_room_from_others,
        a_driver_that_is_dropped_closes_its_sockets,
    }
    connect {
        a_connection_is_made_over_both_kinds_of_ip,
        a_connection_is_made_over_a_unix_socket,
        a_connection_comes_from_where_it_was_told_to,
        a_port_that_was_asked_for_is_the_one_that_is_used,
        a_local_address_that_cannot_be_is_an_error_of_the_connection,
        a_refused_connection_is_told_once_and_nothing_follows,
        what_was_sent_before_the_connection_is_made_waits_for_it,
        a_connection_that_is_reset_at_once_fails,
        who_is_let_go_of_when_it_could_send_is_told_nothing,
        a_connection_that_is_given_up_is_not_told,
    }
    file {
        files_arrive_where_they_stand_among_memory,
        a_file_that_waits_goes_on_when_the_peer_reads,
        a_file_that_is_shorter_than_its_region_is_an_error,
        a_limit_of_nothing_still_sends_something,
        a_file_that_cannot_be_read_is_an_error,
    }
    hold {
        what_comes_while_receiving_is_held_is_told_when_it_goes_on,
        a_hold_in_the_middle_of_a_turn_holds_the_rest_of_the_turn,
        sending_goes_on_while_receiving_is_held,
        accepting_goes_on_while_receiving_is_held,
        a_failure_is_told_while_receiving_is_held,
        what_is_closed_or_paused_while_held_is_not_told_afterwards,
        what_comes_while_receiving_is_held_is_bounded_and_nothing_is_lost,
        everybody_is_heard_when_receiving_goes_on_whatever_was_before,
        little_by_little_no_more_comes_while_receiving_is_held,
    }
    quiet {
        a_new_connection_is_quiet,
        bytes_that_nobody_wants_are_quiet,
        a_half_closed_connection_is_quiet,
        a_reset_after_a_half_close_is_quiet,
        a_send_that_waits_is_quiet,
        a_held_driver_is_quiet,
    }
    receive {
        a_long_stream_arrives_whole,
        receives_grow_while_they_are_full_and_shrink_again,
        urgent_bytes_are_bytes_like_any_other,
        nothing_is_told_of_a_socket_that_is_paused_and_nothing_is_lost,
        who_pauses_again_and_again_is_told_at_most_one_receive_and_nothing_is_lost,
        a_pause_in_the_middle_of_much_keeps_the_rest,
        an_end_that_comes_together_with_bytes_is_told_after_them_and_once,
        an_end_that_comes_while_paused_waits,
        the_peer_may_end_first_and_still_be_sent_to,
        we_may_end_first_and_still_receive,
        a_turn_that_is_cut_short_loses_nothing,
        what_is_kept_of_a_receive_is_not_overwritten_by_the_next,
    }
    reset {
        what_came_before_a_reset_is_told_before_it,
        a_reset_is_told_to_one_who_receives,
        a_failure_is_told_to_one_who_does_not_receive_and_is_the_last_that_is_told,
        a_reset_after_the_end_is_told_once,
        a_unix_peer_that_leaves_bytes_unread_breaks_the_connection,
        a_reset_frees_a_send_that_waits,
        a_reset_while_much_goes_both_ways_is_told_before_any_end,
        a_connection_may_break_in_both_directions_at_once,
    }
    send {
        more_parts_than_one_call_takes_arrive_in_order,
        a_send_that_waits_goes_on_at_the_right_byte_when_the_peer_reads,
        a_call_sends_no_more_than_it_may,
        what_was_sent_holds_no_memory,
        what_was_not_flushed_is_not_sent,
        sending_where_nobody_receives_any_more_fails_without_a_signal,
        sending_after_the_own_end_fails,
        both_directions_go_on_at_the_same_time,
    }
    token {
        an_old_token_reaches_nobody,
        a_token_that_nobody_ever_had_reaches_nobody,
        a_slot_that_is_used_again_at_once_hears_nothing_of_its_former_user,
        what_was_known_of_a_socket_goes_with_it,
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
        what_a_crowd_says_and_its_ends_come_whole_though_nobody_looked,
        what_is_sent_to_a_crowd_between_two_waits_arrives,
        a_crowd_that_is_let_go_of_at_once_is_closed,
        a_crowd_in_the_backlog_is_accepted,
        who_comes_while_a_listener_is_closed_leaves_nothing,
        more_who_speak_than_there_are_buffers_are_all_heard,
        much_from_more_than_there_are_buffers_comes_whole,
        nobody_starves_among_those_who_never_stop,
        who_connects_and_resets_in_a_loop_leaves_nothing,
    }
    fairness {
        a_light_socket_reports_before_heavy_ones_that_were_first,
        heavy_sockets_take_turns,
        a_new_connection_comes_before_heavy_sockets,
        a_light_socket_reports_before_room_for_a_heavy_one,
    }
    farewell {
        a_driver_dropped_in_the_middle_of_everything_gives_all_back,
    }
    limits {
        without_descriptors_making_a_driver_fails_and_leaves_nothing,
        descriptors_that_run_out_among_many_stop_accepting_until_told_to_go_on,
        without_descriptors_connecting_fails_and_the_others_go_on,
        without_memory_to_lock_a_driver_works_or_says_why_not,
        where_io_uring_is_refused_only_its_driver_is_and_says_why,
    }
    random {
        whatever_is_done_in_whatever_order_nothing_is_lost,
    }
}
