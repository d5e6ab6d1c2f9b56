//! The faults of a run: of the broker, of the network, of processes and of clocks.

use std::time::{Duration, Instant};

use tidegate_testkit::network::{FaultRates, Link, NetworkFault};

use super::checks;
use super::world::{NODES, World};

/// The end of a fault that lasts.
#[derive(Debug, Clone, Copy)]
pub(super) enum FaultEnd {
    Heal(usize),
    Resume(usize),
    FastLink(usize),
    BrokerResumes,
    BrokerStarts,
}

impl World {
    pub(super) fn set_network_faults(&self) {
        self.network.set_faults(FaultRates::benign().with(NetworkFault::Reset, 400));
    }

    /// Perhaps a fault begins.
    pub(super) fn fail(&mut self) {
        if self.random.once_in(20) {
            self.model.replicate();
        }
        let process = self.random.below(NODES);
        match self.random.below(200) {
            0 => self.crash(false),
            1 => self.crash(true),
            2 => self.fail_over(),
            3..=5 => self.cut_off(process),
            6 | 7 => self.restart(process),
            8 => self.stop(process),
            9 => self.stop_broker(),
            // Half of the seeds have a clock that is not set, and so kicks whose age is known.
            10 if self.seed.is_multiple_of(2) => self.step_clock(),
            11 | 12 => self.slow_down(process),
            _ => {}
        }
    }

    fn some_time(&mut self, seconds_max: usize) -> Duration {
        Duration::from_millis(1 + self.random.below(1000 * seconds_max) as u64)
    }

    /// A fault begins, which ends by itself. Returns `false` if it would end two at once.
    fn begin(&mut self, end: FaultEnd, lasts: Duration) {
        self.trace(|| format!("until {end:?} {lasts:?} pass"));
        self.fault_ends.push((self.network.now() + lasts, end));
    }

    fn disturb(&mut self, process: Option<usize>, lasts: Duration) {
        let until = self.network.now() + lasts;
        if process.is_none() {
            self.disturbed_until = self.disturbed_until.max(until);
        }
        for (number, one) in self.processes.iter_mut().enumerate() {
            if process.is_none_or(|process| process == number) {
                one.disturbed_until = one.disturbed_until.max(until);
            }
        }
    }

    /// Segments of a host are late.
    fn disturb_host(&mut self, process: usize, lasts: Duration) {
        self.disturb(Some(process), lasts);
        let until = &mut self.late_until[process];
        *until = (*until).max(self.network.now() + lasts);
    }

    /// The broker ends, and starts again soon.
    fn crash(&mut self, loses_data: bool) {
        let Some(server) = self.server.take() else { return };
        self.trace(|| format!("the broker crashes, and loses its data: {loses_data}"));
        server.kill();
        if self.model.crash(loses_data) {
            self.losses.push(self.network.now());
        }
        let lasts = self.some_time(2);
        self.disturb(None, lasts + Duration::from_secs(5));
        self.begin(FaultEnd::BrokerStarts, lasts);
    }

    /// A replica that lacks the last commands takes the broker's place.
    fn fail_over(&mut self) {
        if self.server.is_some() && self.model.go_back() {
            self.trace(|| "the broker goes back".to_owned());
            self.losses.push(self.network.now());
            self.fail_overs.push(self.network.now());
            self.crash(false);
        }
    }

    fn cut_off(&mut self, process: usize) {
        let lasts = self.some_time(20);
        self.network.partition(&self.broker, &self.hosts[process]);
        self.disturb_host(process, lasts);
        self.begin(FaultEnd::Heal(process), lasts);
    }

    /// Segments arrive late.
    fn slow_down(&mut self, process: usize) {
        let (lasts, latency) = (self.some_time(10), self.some_time(3));
        self.set_latency(process, latency);
        self.disturb_host(process, lasts + latency * 2);
        self.begin(FaultEnd::FastLink(process), lasts);
    }

    fn set_latency(&self, process: usize, latency: Duration) {
        let (link, host) = (Link { latency, ..Link::default() }, &self.hosts[process]);
        self.network.set_link_between(&self.broker, host, link);
        self.network.set_link_between(host, &self.broker, link);
    }

    /// The process is killed, and starts again as another one.
    pub(super) fn restart(&mut self, number: usize) {
        let (now, incarnation) = (self.network.now(), self.processes[number].incarnation);
        self.trace(|| format!("{incarnation} is killed"));
        for visit in self.visits.iter_mut().filter(|visit| visit.incarnation == incarnation) {
            if visit.task.take().is_some() {
                visit.left_at.get_or_insert(now);
            }
        }
        self.dies(number);
        let fresh = self.new_process(number);
        let old = std::mem::replace(&mut self.processes[number], fresh);
        old.node.kill();
    }

    fn stop(&mut self, number: usize) {
        let process = &mut self.processes[number];
        if !std::mem::replace(&mut process.is_stopped, true) {
            process.node.set_stopped(true);
            let lasts = self.some_time(40);
            self.disturb(Some(number), lasts);
            self.begin(FaultEnd::Resume(number), lasts);
        }
    }

    fn stop_broker(&mut self) {
        let Some(server) = &self.server else { return };
        server.set_stopped(true);
        let lasts = self.some_time(60);
        self.disturb(None, lasts + Duration::from_secs(5));
        self.begin(FaultEnd::BrokerResumes, lasts);
    }

    /// The broker's clock is set.
    fn step_clock(&mut self) {
        let seconds = *self.random.pick(&[-86_400, -3600, -20, -3, 3, 20, 3600, 86_400]);
        self.set_clock(seconds);
    }

    /// Sets the broker's clock ahead, or back.
    pub(super) fn set_clock(&mut self, seconds: i64) {
        self.trace(|| format!("the broker's clock is set by {seconds} s"));
        self.model.step_clock(seconds * 1000);
        self.clock_steps.push(self.network.now());
        // A record lasts longer if the clock is set back by less than a lease: no other one shows that before its end. Redis
        // removes one that lasts longer than a lease, but only where a process reads it meanwhile.
        let is_short = (-30..0).contains(&seconds);
        let now = self.network.now();
        if is_short {
            // One record may last longer by several steps.
            self.records_last_until = self.records_last_until.max(now) + Duration::from_secs(seconds.unsigned_abs());
        }
        self.disturb(None, self.records_last_until.saturating_duration_since(now));
        if seconds > 60 {
            self.losses.push(self.network.now());
        }
    }

    fn end(&mut self, fault: FaultEnd) {
        self.trace(|| format!("{fault:?}"));
        match fault {
            FaultEnd::Heal(process) => self.network.heal(&self.broker, &self.hosts[process]),
            FaultEnd::FastLink(process) => self.set_latency(process, Link::default().latency),
            FaultEnd::Resume(process) => {
                // It may be another one than that which was stopped.
                let process = &mut self.processes[process];
                process.node.set_stopped(false);
                process.is_stopped = false;
            }
            FaultEnd::BrokerResumes => self.server.iter().for_each(|server| server.set_stopped(false)),
            FaultEnd::BrokerStarts => self.start_broker(),
        }
    }

    /// Time passes. Faults end meanwhile, and no member of a process that has died is seen for longer than its lease.
    pub(super) fn pass(&mut self, time: Duration) {
        let until = self.network.now() + time;
        loop {
            let now = self.network.now();
            let is_due = |(at, _): &(Instant, FaultEnd)| *at <= now;
            let (due, later) = self.fault_ends.drain(..).partition(is_due);
            self.fault_ends = later;
            let due: Vec<(Instant, FaultEnd)> = due;
            due.into_iter().for_each(|(_, fault)| self.end(fault));
            checks::nobody_is_left_behind(self);
            let next = self.fault_ends.iter().map(|(at, _)| *at).fold(until, Instant::min);
            if now >= until {
                return;
            }
            self.network.run_for(next.min(now + Duration::from_secs(1)).saturating_duration_since(now));
        }
    }

    /// All faults end.
    pub(super) fn recover(&mut self) {
        self.network.set_faults(FaultRates::none());
        let ends = std::mem::take(&mut self.fault_ends);
        ends.into_iter().for_each(|(_, fault)| self.end(fault));
    }
}
