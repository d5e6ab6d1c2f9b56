//! The contract of drivers: how connections behave on every driver.
//!
//! Each scenario is written once and runs on each driver: over plain bytes, through a filter made for tests, through TLS
//! and behind a header of the PROXY protocol. Scenarios of streams run over a protocol made for tests and over HTTP/2.
//! At the end of each, nothing may be left: no connection, no socket, no byte in a ledger, no handler without a `closed` call.
//!
//! | | |
//! |---|---|
//! | the environment of a scenario | `stage.rs` |
//! | the test backends: a real kernel, a simulated one | `backends/` |
//! | the pipelines | `stack.rs`, `parcels.rs` |
//! | the protocols with streams | `multiplexer.rs` |
//! | a peer without an event loop | `raw_peer.rs`, `caller.rs` |
//! | a record of the calls of handlers | `journal.rs` |
//! | all scenarios with many seeds | `seeds.rs` |
//! | system calls that fail | `injected_errors.rs` |
//! | the scenarios | a file for each subject, and the list below |
//!
//! A program of its own: `cargo xtask injected` builds it once for each injected bug, and nothing else.
//!
//! A new driver is one more test backend, and one more module in `contract!`.

mod backends;
mod caller;
mod journal;
mod multiplexer;
mod parcels;
mod raw_peer;
mod seeds;
mod stack;
mod stage;

mod accepting;
mod addresses;
mod admission;
mod batches;
mod closing;
mod connecting;
mod deadlines;
mod draining;
mod echo;
mod half_closed;
mod injected_errors;
mod lives;
mod posts;
mod reading;
mod resets;
mod shaping;
mod sniffing;
mod streams;
mod write_positions;
mod writing;

use std::rc::Rc;

use self::backends::Loopback;
use self::multiplexer::{Http2, Toy};
use self::stack::{MakeTransport, Stack};
use self::stage::Stage;

/// A scenario over a pipeline.
#[derive(Clone, Copy)]
struct Play {
    pipeline: &'static str,
    transport: Option<MakeTransport>,
    scenario: fn(&Stage),
}

impl Play {
    const fn over<S: Stack>(scenario: fn(&Stage)) -> Self {
        Self::named::<S>(S::NAME, scenario)
    }

    const fn named<S: Stack>(pipeline: &'static str, scenario: fn(&Stage)) -> Self {
        Self { pipeline, transport: S::TRANSPORT, scenario }
    }
}

/// A scenario, as it is listed.
struct Scenario {
    name: &'static str,
    plays: &'static [Play],
}

/// Lists the scenarios, and makes a test of each on each test backend and over each pipeline.
macro_rules! contract {
    (
        everywhere { $($room:ident { $($name:ident),* $(,)? })* }
        over_streams { $($stream_room:ident { $($stream_name:ident),* $(,)? })* }
        in_real_time { $($real_room:ident { $($real_name:ident),* $(,)? })* }
    ) => {
        const SCENARIOS: &[Scenario] = &[
            $($(Scenario {
                name: concat!(stringify!($room), "::", stringify!($name)),
                plays: &[
                    Play::over::<stack::Plain>($room::$name::<stack::Plain>),
                    Play::over::<stack::Filtered>($room::$name::<stack::Filtered>),
                    Play::over::<stack::Tls>($room::$name::<stack::Tls>),
                    Play::over::<stack::Proxied>($room::$name::<stack::Proxied>),
                ],
            },)*)*
            $($(Scenario {
                name: concat!(stringify!($stream_room), "::", stringify!($stream_name)),
                plays: &[
                    Play::over::<stack::Plain>($stream_room::$stream_name::<stack::Plain, Toy>),
                    Play::over::<stack::Filtered>($stream_room::$stream_name::<stack::Filtered, Toy>),
                    Play::over::<stack::Tls>($stream_room::$stream_name::<stack::Tls, Toy>),
                    Play::over::<stack::Proxied>($stream_room::$stream_name::<stack::Proxied, Toy>),
                    Play::named::<stack::Plain>("http2", $stream_room::$stream_name::<stack::Plain, Http2>),
                    Play::named::<stack::Filtered>("http2_filtered", $stream_room::$stream_name::<stack::Filtered, Http2>),
                ],
            },)*)*
        ];
        mod epoll {
            tests! { crate::play_on_epoll, $($room { $($name),* })* }
            stream_tests! { crate::play_on_epoll, $($stream_room { $($stream_name),* })* }
            mod in_real_time { tests! { crate::play_on_epoll, $($real_room { $($real_name),* })* } }
        }
        mod uring {
            tests! { crate::play_on_uring, $($room { $($name),* })* }
            stream_tests! { crate::play_on_uring, $($stream_room { $($stream_name),* })* }
            mod in_real_time { tests! { crate::play_on_uring, $($real_room { $($real_name),* })* } }
        }
        mod simulator {
            tests! { crate::play_in_simulator, $($room { $($name),* })* }
            stream_tests! { crate::play_in_simulator, $($stream_room { $($stream_name),* })* }
        }
    };
}

macro_rules! tests {
    ($play:path, $($room:ident { $($name:ident),* })*) => {
        $(mod $room {
            $(mod $name {
                use crate::$room::$name as scenario;
                use crate::Play;
                use crate::stack::{Filtered, Plain, Proxied, Tls};

                #[test]
                fn plain() {
                    $play(Play::over::<Plain>(scenario::<Plain>));
                }

                #[test]
                fn filtered() {
                    $play(Play::over::<Filtered>(scenario::<Filtered>));
                }

                #[test]
                fn tls() {
                    $play(Play::over::<Tls>(scenario::<Tls>));
                }

                #[test]
                fn proxied() {
                    $play(Play::over::<Proxied>(scenario::<Proxied>));
                }
            })*
        })*
    };
}

macro_rules! stream_tests {
    ($play:path, $($room:ident { $($name:ident),* })*) => {
        $(mod $room {
            $(mod $name {
                use crate::$room::$name as scenario;
                use crate::Play;
                use crate::multiplexer::{Http2, Toy};
                use crate::stack::{Filtered, Plain, Proxied, Tls};

                #[test]
                fn plain() {
                    $play(Play::over::<Plain>(scenario::<Plain, Toy>));
                }

                #[test]
                fn filtered() {
                    $play(Play::over::<Filtered>(scenario::<Filtered, Toy>));
                }

                #[test]
                fn tls() {
                    $play(Play::over::<Tls>(scenario::<Tls, Toy>));
                }

                #[test]
                fn proxied() {
                    $play(Play::over::<Proxied>(scenario::<Proxied, Toy>));
                }

                #[test]
                fn http2() {
                    $play(Play::over::<Plain>(scenario::<Plain, Http2>));
                }

                #[test]
                fn http2_filtered() {
                    $play(Play::over::<Filtered>(scenario::<Filtered, Http2>));
                }
            })*
        })*
    };
}

contract! {
everywhere {
    echo {
        comes_back_whole,
        comes_back_byte_by_byte,
        comes_back_though_no_buffer_holds_it,
        comes_back_to_a_channel,
        comes_back_to_a_raw_peer_in_random_pieces,
        comes_back_to_each_of_many,
        comes_back_though_a_handler_pauses,
        comes_back_though_a_channel_pauses,
        comes_back_from_a_handler_to_a_handler,
        comes_back_from_a_channel_to_a_handler,
    }
    reading {
        a_watched_end_is_reported_to_a_handler_that_has_paused,
        a_handler_that_pauses_from_the_start_is_delivered_nothing,
        a_pause_in_a_batch_of_messages_applies_to_the_next_one,
        a_pause_in_the_middle_of_a_message_delays_it,
        a_channel_that_does_not_receive_buffers_nothing,
        writability_alone_moves_everything,
        two_ends_that_write_and_read_do_not_wait_for_each_other,
        two_handlers_that_block_each_other_end_by_the_write_deadline,
        a_pause_outlasts_being_unwritable,
        blocked_writes_stop_reading,
        memory_in_transit_is_bounded_by_the_water_marks,
        slices_that_a_handler_keeps_do_not_change,
        a_peer_that_never_reads_is_cut_off_and_its_memory_comes_back,
    }
    writing {
        three_thousand_linked_pieces_leave_in_order,
        linked_pieces_that_no_buffer_holds_leave_in_order,
        pieces_of_every_kind_leave_in_order,
        an_empty_message_is_sent_at_once,
        a_file_shorter_than_its_region_cuts_off_what_follows,
        messages_sent_in_open_arrive,
        messages_sent_as_soon_as_a_channel_opens_arrive,
        after_shutdown_a_handler_sends_nothing_and_receives_all,
        after_shutdown_a_channel_sends_nothing_and_receives_all,
        bytes_before_a_cut_off_arrive_unchanged,
        pending_bytes_of_a_dropped_channel_arrive_whole,
        a_close_completes_when_everything_has_left,
        pending_messages_of_a_failed_handler_arrive_whole,
        dropping_a_flushed_future_loses_no_bytes,
        bytes_to_many_connections_in_one_turn_do_not_mix,
    }
    write_positions {
        a_position_is_flushed_when_its_bytes_have_left_and_not_before,
        positions_that_are_a_byte_apart_are_distinct,
        a_watched_position_is_reported_once_when_its_bytes_have_left,
        a_position_one_byte_ahead_waits,
    }
    closing {
        our_end_leaves_the_peers_side_open,
        the_peers_end_leaves_our_side_open,
        an_end_that_comes_with_data_is_seen_after_it,
        both_sides_may_end_at_once,
        pending_bytes_arrive_before_the_close,
        a_dropped_channel_sends_its_pending_bytes,
        a_handler_that_fails_cuts_its_connection_off,
        a_panic_ends_its_own_connection_only,
        a_handler_may_end_at_any_event,
        a_broken_handshake_ends_its_own_connection_only,
        input_of_a_closed_connection_uses_up_no_receive_buffers,
    }
    resets {
        before_it_is_accepted,
        right_after_connecting,
        while_idle,
        with_unread_data,
        with_pending_bytes,
        after_our_end,
        after_the_peers_end,
        while_waiting_for_the_peers_end,
        a_peer_that_never_reads_is_cut_off,
        by_a_peer_that_leaves_in_the_middle,
        end_whatever_a_channel_waits_for,
        on_purpose_by_a_channel_are_seen_by_the_peer,
        on_purpose_by_a_half_end_the_other_half,
        on_purpose_by_a_handler_are_seen_by_the_peer,
    }
    connecting {
        is_refused_without_a_listener,
        times_out_without_an_answer,
        is_given_up_with_its_future,
        succeeds_twice_with_the_same_client,
        goes_on_with_the_next_address,
        uses_the_requested_local_address,
        hands_its_connection_to_a_handler,
    }
    accepting {
        simultaneous_connections_are_all_served,
        no_more_are_served_than_may_be,
        accepting_pauses_on_request,
        closing_a_listener_closes_its_waiting_connections,
        events_of_a_closed_connection_do_not_reach_its_successor,
    }
    admission {
        no_more_are_served_than_an_address_may_have,
        every_end_gives_the_place_back,
        a_channel_that_is_kept_keeps_the_place,
        a_drain_gives_all_places_back,
        listeners_with_caps_of_their_own_count_apart,
        loops_with_the_same_caps_count_together,
        refused_peers_disturb_no_other,
        a_burst_is_admitted_and_no_more,
        lists_of_networks_admit_and_refuse,
        peers_of_unix_sockets_are_always_admitted,
    }
    posts {
        arrive_in_order,
        of_another_thread_arrive_in_order,
        to_a_closed_connection_are_refused,
        that_come_too_late_reach_no_connection,
        and_messages_do_not_mix,
    }
    deadlines {
        come_once_and_in_time,
        are_moved_back,
        are_moved_ahead,
        are_taken_back,
        follow_one_another,
        of_many_come_together,
        fire_on_unwritable_connections,
        of_channels_lose_nothing,
        of_tasks_come_in_their_order,
        of_idle_peers_end_them_in_good_order,
        of_slow_messages_end_their_peers,
        of_handshakes_reset_their_peers,
        of_age_drain_connections_and_end_them,
    }
    draining {
        idle_connections_end_at_once,
        nothing_more_is_accepted,
        a_request_under_way_is_answered,
        a_connection_that_does_not_end_is_cut_off_in_time,
        channels_are_notified_once,
        a_connection_that_is_being_made_is_given_up_in_time,
        a_second_drain_shortens_the_first,
    }
    half_closed { a_reset_of_an_ended_stream_has_no_effect }
    sniffing {
        the_first_bytes_choose_handler_or_channel,
        the_first_bytes_choose_a_session,
        a_silent_peer_is_cut_off_in_time,
        a_peer_that_sends_too_little_is_cut_off_in_time,
        a_silent_peer_is_greeted_after_the_deadline,
        garbage_is_cut_off_or_goes_to_the_default,
        a_drain_closes_connections_whose_protocol_is_not_known,
        a_panic_of_a_rule_ends_its_own_connection_only,
    }
    shaping {
        a_connection_sends_all_and_no_faster_than_its_rate,
        a_connection_receives_all_and_no_faster_than_its_rate,
        connections_of_a_loop_share_a_rate_and_none_starves,
        a_connection_that_closes_sends_the_rest,
        a_reset_ends_a_connection_that_waits,
    }
    lives { of_random_kinds_end_correctly }
    addresses {
        are_right_on_both_sides,
        are_those_of_the_listener_to_a_driver,
        of_the_peer_are_gone_after_a_reset,
        of_the_peer_are_remembered_by_channels,
    }
}
over_streams {
    streams {
        messages_come_back_on_each_of_many,
        long_messages_pass_through_small_windows,
        streams_that_are_not_read_stop_no_other,
        an_end_leaves_the_other_side_of_the_stream_open,
        resets_arrive_with_their_code_on_either_side,
        a_reset_behind_the_end_takes_nothing_back,
        a_session_that_breaks_ends_all_of_its_streams,
        a_drain_waits_for_streams_and_refuses_new_ones,
        a_panic_ends_its_own_stream_only,
        streams_that_come_and_go_leave_nothing,
        a_message_at_work_holds_its_window,
        a_stream_becomes_writable_again_when_it_is_granted_window,
        deadlines_and_posts_reach_streams,
        more_streams_than_allowed_are_refused,
        a_flood_of_streams_reset_at_once_ends_the_session,
        bytes_to_a_closed_stream_hold_no_window,
        a_peer_that_grants_nothing_loses_its_stream_in_time,
        a_stream_that_has_sent_all_is_not_late,
        a_peer_that_grants_byte_by_byte_gets_them_so,
        a_peer_that_ignores_windows_ends_its_session,
        a_session_reads_whatever_its_applications_do,
        urgent_streams_overtake_others,
    }
    batches {
        replies_of_any_length_arrive_whole,
        a_peer_that_reads_late_may_ping,
        replies_that_wait_leave_by_urgency,
        a_panic_loses_its_own_stream_only,
        a_stream_may_end_or_reset_itself,
        a_stream_may_make_another_send,
        a_session_that_ends_ends_its_streams,
        write_positions_are_those_of_the_stream,
    }
}
// These need loops that really sleep and threads that run at any time, which no seed decides.
in_real_time {
    posts {
        wake_a_loop_that_sleeps,
        of_several_threads_wake_it_each_time,
    }
}
}

fn play_on_epoll(play: Play) {
    let stage = Stage::new(Loopback::epoll(), play.transport);
    (play.scenario)(&stage);
    stage.finish();
}

fn play_on_uring(play: Play) {
    let stage = Stage::new(Loopback::uring(), play.transport);
    (play.scenario)(&stage);
    stage.finish();
}

/// A few seeds; `seeds.rs` has more.
fn play_in_simulator(play: Play) {
    let fault_counts = Rc::default();
    for seed in tidegate_testkit::seeds(seeds::count_over(&play, 8)) {
        seeds::play(play, seed, &fault_counts);
    }
}
