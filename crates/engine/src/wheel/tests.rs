use super::*;

struct Table(Vec<Node>);

impl Nodes for Table {
    fn node(&mut self, index: u32) -> &mut Node {
        &mut self.0[index as usize]
    }
}

fn wheel(nodes: usize) -> (Instant, Wheel, Table) {
    let start = Instant::now();
    (start, Wheel::new(start), Table(vec![Node::default(); nodes]))
}

const fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % bound
    }
}

#[test]
fn a_node_fires_at_its_time_and_not_before() {
    for away in [1, 2, 63, 64, 65, 4095, 4096, 100_000, 20_000_000] {
        let (start, mut wheel, mut nodes) = wheel(1);
        let at = start + ms(away);
        let tick = wheel.tick(at);
        wheel.set(&mut nodes, 0, tick);
        assert_eq!(wheel.expire(&mut nodes, at - ms(1)), None, "{away}");
        assert_eq!(wheel.expire(&mut nodes, at), Some(0), "{away}");
        assert_eq!(wheel.expire(&mut nodes, at + ms(1 << 30)), None, "it fires once");
    }
}

#[test]
fn moving_a_deadline_back_leaves_the_node_where_it_is() {
    let (start, mut wheel, mut nodes) = wheel(1);
    let first = wheel.tick(start + ms(10));
    wheel.set(&mut nodes, 0, first);
    let later = wheel.tick(start + ms(5000));
    wheel.set(&mut nodes, 0, later);
    assert_eq!(nodes.0[0].armed, first);
    assert_eq!(wheel.expire(&mut nodes, start + ms(4999)), None);
    assert_eq!(wheel.expire(&mut nodes, start + ms(5000)), Some(0));
}

#[test]
fn a_cleared_or_forgotten_deadline_does_not_fire() {
    let (start, mut wheel, mut nodes) = wheel(3);
    for index in 0..3 {
        let tick = wheel.tick(start + ms(10));
        wheel.set(&mut nodes, index, tick);
    }
    wheel.set(&mut nodes, 0, DeadlineTick::NEVER);
    wheel.forget(&mut nodes, 1);
    assert_eq!(wheel.expire(&mut nodes, start + ms(20)), Some(2));
    assert_eq!(wheel.expire(&mut nodes, start + ms(20)), None);
    assert_eq!(wheel.timeout(start + ms(20)), None);
}

#[test]
fn the_timeout_never_oversleeps() {
    let (start, mut wheel, mut nodes) = wheel(1);
    let tick = wheel.tick(start + ms(7000));
    wheel.set(&mut nodes, 0, tick);
    let mut now = start;
    for _ in 0..10 {
        let timeout = wheel.timeout(now).expect("something is armed");
        assert!(now + timeout <= start + ms(7000));
        now += timeout.max(ms(1));
        if wheel.expire(&mut nodes, now).is_some() {
            assert_eq!(now, start + ms(7000));
            return;
        }
    }
    panic!("it took more than ten wake-ups");
}

#[test]
fn it_agrees_with_a_sorted_list_over_a_hundred_days() {
    let seed = std::env::var("TIDEGATE_SEED").map_or(2693, |seed| seed.parse().expect("a seed is a decimal number"));
    println!("TIDEGATE_SEED={seed}");
    let mut random = Random(seed);
    let (start, mut wheel, mut nodes) = wheel(64);
    let mut model = [None; 64];
    let mut now = 0;
    while now < 100 * 86_400_000 {
        for _ in 0..random.below(8) {
            let index = random.below(64) as usize;
            let magnitude = 1 << random.below(30);
            let at = now + 1 + random.below(magnitude);
            let tick = if random.below(8) == 0 { None } else { Some(at) };
            model[index] = tick;
            let tick = tick.map_or(DeadlineTick::NEVER, |at| wheel.tick(start + ms(at)));
            wheel.set(&mut nodes, index as u32, tick);
        }
        let magnitude = 1 << random.below(31);
        now += random.below(magnitude);
        let mut fired = Vec::new();
        while let Some(index) = wheel.expire(&mut nodes, start + ms(now)) {
            fired.push(index as usize);
        }
        fired.sort_unstable();
        let due: Vec<_> = (0..64).filter(|&index| model[index].is_some_and(|at| at <= now)).collect();
        assert_eq!(fired, due, "at {now}");
        due.into_iter().for_each(|index| model[index] = None);
    }
}

#[test]
fn a_deadline_too_far_away_is_clamped_to_the_maximum() {
    let (start, mut wheel, mut nodes) = wheel(1);
    let tick = wheel.tick_after(start, Duration::from_secs(1 << 61));
    wheel.set(&mut nodes, 0, tick);
    assert_eq!(wheel.expire(&mut nodes, start + Duration::from_secs(12 * 86_400)), None);
    assert_eq!(wheel.expire(&mut nodes, start + Duration::from_secs(13 * 86_400)), Some(0));
}
