//! The contract of drivers: what connections must do, whatever is beneath them.
//!
//! Each scenario is written once and played on each driver, over bytes as they are and below a filter. At the end of
//! each, nothing may be left: no connection, no socket, no byte in a ledger, no handler that was not told.
//!
//! | | |
//! |---|---|
//! | where a scenario plays | `stage.rs` |
//! | what is beneath: a real kernel, a simulated one | `grounds/` |
//! | over which pipelines | `stack.rs`, `parcels.rs` |
//! | a peer without an event loop | `bare.rs`, `caller.rs` |
//! | all of it with many seeds | `seeds.rs` |
//! | calls to the system that fail | `troubles.rs` |
//! | what is played | a file for each subject, and the list below |
//!
//! A new driver is one more ground, and one more module in `contract!`.

mod bare;
mod caller;
mod grounds;
mod parcels;
mod seeds;
mod stack;
mod stage;

mod echo;
mod reading;
mod troubles;
mod writing;

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
    echo {
        comes_back_whole,
        comes_back_byte_by_byte,
        comes_back_though_no_buffer_holds_it,
        comes_back_to_a_channel,
        comes_back_to_a_bare_peer_in_random_pieces,
        comes_back_to_each_of_many,
        comes_back_though_a_handler_pauses,
        comes_back_though_a_channel_pauses,
        comes_back_from_a_handler_to_a_handler,
        comes_back_from_a_channel_to_a_handler,
    }
    reading {
        a_handler_that_pauses_from_the_start_is_delivered_nothing,
        a_pause_in_a_batch_of_messages_holds_back_the_very_next,
        a_pause_in_the_middle_of_a_message_holds_it_back,
        a_channel_that_does_not_receive_holds_nothing,
        writability_alone_moves_everything,
        two_ends_that_write_and_read_do_not_wait_for_each_other,
        two_handlers_that_wait_for_each_other_are_parted,
        a_pause_outlasts_being_unwritable,
        who_holds_its_connection_is_not_read_from,
        memory_on_the_way_is_bounded_by_the_marks,
        a_peer_that_never_reads_is_cut_off_and_its_memory_comes_back,
    }
    writing {
        three_thousand_linked_pieces_leave_in_order,
        linked_pieces_that_no_buffer_holds_leave_in_order,
        pieces_of_every_kind_leave_in_order,
        what_is_empty_is_sent_at_once,
        a_file_shorter_than_its_region_cuts_off_what_follows,
        what_is_sent_when_a_handler_opens_arrives,
        what_is_sent_as_soon_as_a_channel_is_there_arrives,
        after_its_end_a_handler_sends_nothing_and_hears_all,
        after_its_end_a_channel_sends_nothing_and_hears_all,
        what_a_bare_peer_did_not_send_is_cut_off_behind_what_it_did,
        what_waits_when_a_channel_is_dropped_arrives_whole,
        a_close_is_over_when_everything_has_left,
        what_waits_when_a_handler_fails_arrives_in_whole_messages,
        a_promise_that_is_dropped_takes_nothing_back,
        a_mark_is_flushed_when_its_bytes_have_left_and_not_before,
        marks_that_are_a_byte_apart_are_kept_apart,
        a_watched_mark_is_told_once_when_its_bytes_have_left,
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
