//! The contract of drivers: what connections must do, whatever is beneath them.
//!
//! Each scenario is written once and played on each driver, over bytes as they are and below a filter. At the end of
//! each, nothing may be left: no connection, no socket, no byte in a ledger, no handler that was not told.
//!
//! | | |
//! |---|---|
//! | where a scenario plays | `stage.rs` |
//! | what is beneath: a real kernel, a simulated one | `grounds/` |
//! | over which pipelines | `stack.rs` |
//! | a peer without an event loop | `bare.rs` |
//! | what handlers were told | `journal.rs` |
//! | all of it with many seeds | `seeds.rs` |
//! | what is played | a file for each subject, and the list below |
//!
//! A new driver is one more ground, and one more module in `contract!`.

mod bare;
mod grounds;
mod journal;
mod seeds;
mod stack;
mod stage;

mod accepting;
mod addresses;
mod closing;
mod connecting;
mod deadlines;
mod draining;
mod echo;
mod lives;
mod posts;
mod resets;

use std::rc::Rc;

use self::grounds::{Epoll, Simulator};
use self::stage::Stage;

/// Something to be played on a stage.
type Play = fn(&Stage);

/// A scenario, as it is listed.
struct Scenario {
    name: &'static str,
    plays: [Play; 2],
}

/// Lists the scenarios, and makes a test of each on each ground and over each pipeline.
macro_rules! contract {
    ($($room:ident { $($name:ident),* $(,)? })*) => {
        const SCENARIOS: &[Scenario] = &[$($(Scenario {
            name: concat!(stringify!($room), "::", stringify!($name)),
            plays: [$room::$name::<stack::Plain>, $room::$name::<stack::Filtered>],
        }),*),*];
        mod epoll { tests! { crate::play_on_epoll, $($room { $($name),* })* } }
        mod simulator { tests! { crate::play_in_simulator, $($room { $($name),* })* } }
    };
}

macro_rules! tests {
    ($play:path, $($room:ident { $($name:ident),* })*) => {
        $(mod $room {
            $(mod $name {
                #[test]
                fn plain() {
                    $play(crate::$room::$name::<crate::stack::Plain>);
                }

                #[test]
                fn filtered() {
                    $play(crate::$room::$name::<crate::stack::Filtered>);
                }
            })*
        })*
    };
}

contract! {
    echo { comes_back_whole, comes_back_byte_by_byte, comes_back_to_a_channel }
    closing {
        our_end_leaves_the_peers_side_open,
        the_peers_end_leaves_our_side_open,
        an_end_that_comes_with_data_is_seen_after_it,
        both_sides_may_end_at_once,
        what_waits_arrives_before_the_close,
        a_channel_that_is_dropped_sends_what_waits,
        a_handler_that_fails_cuts_its_connection_off,
        a_panic_ends_its_own_connection_only,
        a_handler_may_end_whenever_it_is_told_something,
    }
    resets {
        before_it_is_accepted,
        right_after_connecting,
        while_idle,
        with_data_that_nobody_wanted,
        with_bytes_that_wait,
        after_our_end,
        after_the_peers_end,
        while_the_peer_is_waited_for,
        a_peer_that_never_reads_is_cut_off,
        by_a_peer_that_leaves_in_the_middle,
        end_whatever_a_channel_waits_for,
    }
    connecting {
        is_refused_where_nobody_listens,
        takes_too_long_where_nobody_answers,
        is_given_up_with_its_future,
        succeeds_twice_with_the_same_client,
        goes_on_with_the_next_address,
        comes_from_the_address_that_was_asked_for,
        hands_its_connection_to_a_handler,
    }
    accepting {
        all_who_come_at_once_are_served,
        no_more_are_served_than_may_be,
        a_driver_that_is_told_to_pauses,
        a_listener_that_goes_takes_along_who_waits,
        nothing_of_the_old_reaches_the_new,
    }
    posts {
        arrive_in_order,
        of_another_thread_arrive_in_order,
        wake_a_loop_that_sleeps,
        of_several_threads_wake_it_each_time,
        to_who_is_gone_are_refused,
        that_come_too_late_come_to_nobody,
        and_messages_do_not_mix,
    }
    deadlines {
        come_once_and_in_time,
        are_moved_back,
        are_moved_ahead,
        are_taken_back,
        follow_one_another,
        of_many_come_together,
        come_to_who_cannot_write,
        of_channels_lose_nothing,
        of_tasks_come_in_their_order,
    }
    draining {
        idle_connections_end_at_once,
        nothing_more_is_accepted,
        a_request_under_way_is_answered,
        who_does_not_end_is_cut_off_in_time,
        channels_are_told_once,
        a_connection_that_is_being_made_is_given_up_in_time,
        a_second_drain_shortens_the_first,
    }
    lives { of_all_kinds_end_as_they_should }
    addresses {
        are_right_on_both_sides,
        are_those_of_the_listener_to_a_driver,
        of_the_peer_are_gone_after_a_reset,
        of_the_peer_are_remembered_by_channels,
    }
}

fn play_on_epoll(play: Play) {
    let stage = Stage::new(Epoll::new());
    play(&stage);
    stage.finish();
}

/// A few seeds; `seeds.rs` has more.
fn play_in_simulator(play: Play) {
    let fired = Rc::default();
    for seed in tidegate_testkit::seeds(8) {
        seeds::play(play, seed, &fired);
    }
}
