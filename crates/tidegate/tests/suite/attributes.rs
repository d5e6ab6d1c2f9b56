//! The attributes on functions of several forms.

use std::time::Duration;

use tidegate::task;

/// Documentation and other attributes stay with the function.
#[tidegate::test]
async fn a_test_awaits_timers_of_the_loop() {
    let begun = task::now();
    task::sleep(Duration::from_millis(2)).await;
    assert!(task::now() - begun >= Duration::from_millis(2));
}

#[tidegate::test]
async fn a_test_may_return_a_result() -> Result<(), std::num::ParseIntError> {
    assert_eq!("42".parse::<u32>()?, 42);
    Ok(())
}

#[tidegate::test]
#[should_panic(expected = "this panic belongs to the test")]
async fn a_test_may_be_expected_to_panic() {
    task::sleep(Duration::from_millis(1)).await;
    panic!("this panic belongs to the test");
}

#[tidegate::test(backend = "epoll")]
async fn a_comma_may_follow_the_last_argument() {
    assert_eq!(task::spawn(async { 1 }).await, Ok(1));
}

mod nested {
    #[tidegate::main]
    pub(super) async fn main() -> u32 {
        tidegate::task::spawn(async { 6 * 7 }).await.unwrap_or_default()
    }
}

#[test]
fn a_main_returns_the_result_of_its_async_function() {
    assert_eq!(nested::main(), 42);
}
