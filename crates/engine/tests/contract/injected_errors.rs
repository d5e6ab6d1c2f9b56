//! System calls that fail: each kind of call in turn, each error, the first time, the second, and so on. Connections
//! may be lost, and nothing else: service goes on, and nothing is left behind.

use std::cell::RefCell;
use std::convert::Infallible;
use std::fs::File;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tidegate_codec::framing::Raw;
use tidegate_codec::{Codec, FileRegion, Input, Output, Slice, Step};
use tidegate_engine::{Client, Limits, Outcome};
use tidegate_sys::{Address, Driver};
use tidegate_testkit::shim::{InjectedError, Shim, ShimPlan, SystemCall};

use crate::backends::{Loopback, Simulator};
use crate::echo::{echo, echo_task, exchange, pattern};
use crate::stack::Plain;
use crate::stage::{Call, Cx, Side, Site, Stage, Started};

#[test]
fn no_call_that_fails_in_a_simulation_costs_more_than_its_connection() {
    everything_strikes(12, |plan| {
        let stage = Stage::new(Simulator::new(0, &Rc::default()), None);
        let occurred = survives(&stage, plan, Duration::from_secs(1));
        stage.finish();
        occurred
    });
}

#[test]
fn no_call_that_fails_on_epoll_costs_more_than_its_connection() {
    everything_strikes(real_occasions(), |plan| {
        let stage = Stage::new(Loopback::epoll(), None);
        let occurred = survives(&stage, plan, Duration::from_secs(10));
        stage.finish();
        occurred
    });
}

#[test]
fn no_call_that_fails_on_uring_costs_more_than_its_connection() {
    everything_strikes(real_occasions(), |plan| {
        let stage = Stage::new(Loopback::uring(), None);
        let occurred = survives(&stage, plan, Duration::from_secs(10));
        stage.finish();
        occurred
    });
}

/// On a kernel each occasion lingers in real time: the first by default, and three in `cargo xtask long`, which sets
/// `TIDEGATE_OCCASIONS`.
fn real_occasions() -> u64 {
    let occasions = std::env::var("TIDEGATE_OCCASIONS");
    occasions.map_or(1, |text| text.parse().unwrap_or_else(|_| panic!("TIDEGATE_OCCASIONS={text}")))
}

/// Every call with every error, at every opportunity; one failure, and several in a row. Each planned failure occurs.
fn everything_strikes(occasions: u64, survive: impl Fn(ShimPlan) -> u64) {
    for call in SystemCall::ALL {
        let mut occurred = 0;
        for error in InjectedError::ALL.into_iter().filter(|error| call.can_fail_with(*error)) {
            let before = occurred;
            for (first, count) in (1..=occasions).flat_map(|first| [(first, 1), (first, 5)]) {
                occurred += survive(ShimPlan { call, first, count, error });
            }
            assert!(occurred > before, "{call:?} has never met {error:?}");
        }
        println!("{call:?} met with error {occurred} times");
    }
}

/// Two loops whose calls fail serve and connect; then a client whose calls do not fail is served within the time.
fn survives(stage: &Stage, plan: ShimPlan, soon: Duration) -> u64 {
    let occurred = Rc::<RefCell<Vec<_>>>::default();
    let shimmed = |side, plan| {
        let occurred = occurred.clone();
        let wrap = move |driver| {
            let shim = Shim::new(driver, plan);
            occurred.borrow_mut().push(shim.injected());
            Box::new(shim) as Box<dyn Driver>
        };
        stage.site_over(side, Box::new(wrap))
    };
    // A call that fails while a listener is adopted fails at once, and in `listen`.
    let listens = if plan.call == SystemCall::Register { LISTENERS } else { 0 };
    let server = shimmed(Side::Server, ShimPlan { first: plan.first + listens, ..plan });
    let client = shimmed(Side::Client, plan);
    let limits = Limits { linger_timeout: stage.units(1), ..Limits::default() };
    let echoes = stage.listen(&server, limits.clone(), || Raw, || echo::<Plain>);
    let tasks = stage.serve(&server, limits.clone(), || Raw, echo_task::<Plain>);
    let files = stage.listen(&server, limits, || Files, || send_file);

    let bytes = pattern(20_000);
    let exchanges =
        |site: &Site| [&echoes, &tasks].map(|to| stage.start(site, exchange::<Plain>(to.clone(), bytes.clone(), 4000)));
    let turns = server.counts().turns + client.counts().turns;
    let started = [exchanges(&client), exchanges(&client)].concat();
    let fetched = stage.start(&client, fetch(files.clone()));
    let has_ended = || started.iter().all(Started::has_ended) && fetched.has_ended();
    stage.until(&format!("everybody comes to an end with {plan:?}"), has_ended);
    for started in started {
        if let Ok(come) = stage.outcome(&started) {
            assert!(come == bytes, "other bytes came back with {plan:?}");
        }
    }
    if let Ok(come) = stage.outcome(&fetched) {
        assert!(come == content(), "another file came with {plan:?}");
    }
    let turned = server.counts().turns + client.counts().turns - turns;
    assert!(stage.is_real() || turned < TURNS_MAX, "{turned} turns with {plan:?}");

    // A planned failure may occur once more; a client that tries again is served.
    let healthy = stage.client();
    let healed = stage.start(&healthy, async move {
        while exchange::<Plain>(echoes.clone(), bytes.clone(), 4000).await.as_ref() != Ok(&bytes) {}
        while exchange::<Plain>(tasks.clone(), bytes.clone(), 4000).await.as_ref() != Ok(&bytes) {}
        while fetch(files.clone()).await != Ok(content()) {}
    });
    assert!(stage.happens(soon, || healed.has_ended()), "no service with {plan:?}, {:#?}", server.counts());
    occurred.take().into_iter().map(|occurred| occurred.get()).sum()
}

/// The bytes of a file from the server.
async fn fetch(from: Address) -> Result<Vec<u8>, String> {
    let mut channel = Client::at(from).connect(Raw).await.map_err(|error| error.to_string())?;
    let mut come = Vec::new();
    while let Some(bytes) = channel.recv().await.map_err(|error| error.to_string())? {
        come.extend_from_slice(&bytes);
    }
    Ok(come)
}

/// Sends a file and closes.
fn send_file(call: Call, cx: &mut Cx<'_, Files>) -> Outcome<Files> {
    match call {
        Call::Open => {
            let file = Arc::new(File::open(FILE).expect("the file is there"));
            let region = FileRegion { file, offset: 0, length: content().len() as u64 };
            cx.send(region).map_or_else(|_| Outcome::fail("refused"), |_| Outcome::Close)
        }
        call => call.by_default(cx),
    }
}

fn content() -> Vec<u8> {
    std::fs::read(FILE).expect("the file is there")
}

/// Files without framing.
struct Files;

impl Codec for Files {
    type In = Slice;
    type Out = FileRegion;
    type Error = Infallible;

    fn decode(&mut self, input: &mut Input, _: &mut Output<'_>) -> Result<Step<Slice>, Infallible> {
        Ok(if input.is_empty() { Step::NeedMore } else { Step::Message(input.take_all()) })
    }

    fn encode(&mut self, region: FileRegion, out: &mut Output<'_>) -> Result<(), Infallible> {
        out.link_file(region);
        Ok(())
    }
}

/// Any will do.
const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/event_loop.rs");

/// Listeners of the server.
const LISTENERS: u64 = 3;

/// Several times the turns that the whole scenario takes.
const TURNS_MAX: u64 = 3000;
