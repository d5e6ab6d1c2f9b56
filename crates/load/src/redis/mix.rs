//! `CommandMix`: the commands of a load by weight. Each is encoded once; what differs from one to the next is the number
//! in its keys, which has a fixed width and is written over the encoded one.

use super::super::words;

/// The commands of a load, and how often each is sent.
#[derive(Debug, Clone)]
pub(crate) struct CommandMix {
    pub(crate) commands: Vec<CommandTemplate>,
    weights: u64,
    /// Keys are numbered from 0 to this, exclusively.
    keys: u64,
}

/// A command with its placeholders.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CommandTemplate {
    /// The name in the reports.
    pub(crate) name: String,
    weight: u32,
    /// The arguments, with placeholders.
    arguments: Vec<String>,
    wire: Vec<u8>,
    /// Where the numbers in `wire` begin.
    numbers: Vec<usize>,
}

/// Parses the values of `--commands`. One with a space is a command with its arguments, and `:N` as its last word is the
/// weight; another one is a list of known names, `get:80,set:20`.
///
/// # Errors
/// The part that cannot be used, and what may stand there.
pub(crate) fn parse(texts: &[String]) -> Result<Vec<CommandTemplate>, String> {
    let mut commands = Vec::new();
    for text in texts {
        if text.trim().contains(char::is_whitespace) {
            commands.push(parse_text(text)?);
            continue;
        }
        for item in text.split(',') {
            let (name, weight) = item.split_once(':').unwrap_or((item, "1"));
            let known = KNOWN.iter().find(|(known, _)| name.eq_ignore_ascii_case(known));
            let Some((name, template)) = known else {
                let names: Vec<_> = KNOWN.iter().map(|(name, _)| *name).collect();
                return Err(format!(
                    "--commands knows no '{name}': write one of {}, or a whole command with its arguments, \
                     'EXPIRE __key__ 60'",
                    names.join(", ")
                ));
            };
            let arguments = template.split(' ').map(str::to_owned).collect();
            commands.push(CommandTemplate::new((*name).to_owned(), weight_of(weight, item)?, arguments));
        }
    }
    if commands.len() > COMMANDS_MAX {
        return Err(format!("--commands has {} commands, and {COMMANDS_MAX} is the most", commands.len()));
    }
    Ok(commands)
}

fn parse_text(text: &str) -> Result<CommandTemplate, String> {
    let mut arguments = words::split(text).map_err(|why| format!("--commands '{text}': {why}"))?;
    let weight = match arguments.last().and_then(|last| last.strip_prefix(':')) {
        Some(weight) if arguments.len() > 1 && weight.bytes().all(|byte| byte.is_ascii_digit()) => {
            let weight = weight_of(weight, text)?;
            arguments.pop();
            weight
        }
        _ => 1,
    };
    if arguments.first().is_none_or(String::is_empty) {
        return Err(format!("--commands '{text}' has no name"));
    }
    Ok(CommandTemplate::new(arguments.join(" "), weight, arguments))
}

fn weight_of(digits: &str, item: &str) -> Result<u32, String> {
    let weight = digits.parse().ok().filter(|weight| (1..=WEIGHT_MAX).contains(weight));
    weight.ok_or_else(|| format!("--commands '{item}': a weight is a number from 1 to {WEIGHT_MAX}, get:80,set:20"))
}

impl CommandTemplate {
    fn new(name: String, weight: u32, arguments: Vec<String>) -> Self {
        Self { name, weight, arguments, wire: Vec::new(), numbers: Vec::new() }
    }

    /// Encodes the command with values of this length.
    fn encode(&mut self, value_bytes: usize) {
        let value = "x".repeat(value_bytes);
        (self.wire, self.numbers) = (format!("*{}\r\n", self.arguments.len()).into_bytes(), Vec::new());
        for argument in &self.arguments {
            let argument = argument.replace("__key__", "key:__number__");
            let mut parts = argument.split("__number__").map(|part| part.replace("__value__", &value));
            let mut text = parts.next().unwrap_or_default();
            let mut numbers = Vec::new();
            for part in parts {
                numbers.push(text.len());
                text.push_str(&"0".repeat(NUMBER_DIGITS));
                text.push_str(&part);
            }
            self.wire.extend_from_slice(format!("${}\r\n", text.len()).as_bytes());
            self.numbers.extend(numbers.into_iter().map(|at| self.wire.len() + at));
            self.wire.extend_from_slice(text.as_bytes());
            self.wire.extend_from_slice(b"\r\n");
        }
    }

    pub(crate) fn wire_bytes(&self) -> usize {
        self.wire.len()
    }
}

impl CommandMix {
    /// The mix of these commands, with keys from 0 to `keys` and values of so many bytes.
    pub(crate) fn new(mut commands: Vec<CommandTemplate>, keys: u64, value_bytes: usize) -> Self {
        for command in &mut commands {
            command.encode(value_bytes);
        }
        let weights = commands.iter().map(|command| u64::from(command.weight)).sum();
        Self { commands, weights, keys: keys.max(1) }
    }

    /// Draws a command, and writes it. Returns its place in the list.
    pub(crate) fn write(&self, random: &mut KeyRandom, bytes: &mut Vec<u8>) -> usize {
        let mut left = if self.commands.len() > 1 { random.below(self.weights) } else { 0 };
        let drawn = self.commands.iter().position(|command| {
            let weight = u64::from(command.weight);
            let is_drawn = left < weight;
            left = left.saturating_sub(weight);
            is_drawn
        });
        let index = drawn.unwrap_or(0);
        let Some(command) = self.commands.get(index) else { return index };
        let start = bytes.len();
        bytes.extend_from_slice(&command.wire);
        for at in &command.numbers {
            let mut number = random.below(self.keys);
            for digit in bytes[start + at..start + at + NUMBER_DIGITS].iter_mut().rev() {
                *digit = b'0' + (number % 10) as u8;
                number /= 10;
            }
        }
        index
    }
}

/// Draws keys and commands: `SplitMix64`. The same seed draws the same ones, so that two loads are comparable.
#[derive(Debug, Clone)]
pub(crate) struct KeyRandom(u64);

impl KeyRandom {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below `end`, evenly as far as 64 bits go.
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let bits = bits ^ (bits >> 31);
        ((u128::from(bits) * u128::from(end)) >> 64) as u64
    }
}

/// The known commands. Each type of value has keys of its own.
const KNOWN: [(&str, &str); 8] = [
    ("get", "GET __key__"),
    ("set", "SET __key__ __value__"),
    ("incr", "INCR counter:__number__"),
    ("mget", "MGET __key__ __key__ __key__ __key__ __key__ __key__ __key__ __key__ __key__ __key__"),
    ("lpush", "LPUSH list:__number__ __value__"),
    ("hset", "HSET hash:__number__ field __value__"),
    ("zadd", "ZADD zset:__number__ __number__ member:__number__"),
    ("ping", "PING"),
];

/// The digits of a number in a key.
const NUMBER_DIGITS: usize = 12;

/// The most commands of a load, and the greatest weight of one.
const COMMANDS_MAX: usize = 64;
const WEIGHT_MAX: u32 = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn mix(texts: &[&str], keys: u64) -> CommandMix {
        let texts: Vec<_> = texts.iter().map(ToString::to_string).collect();
        CommandMix::new(parse(&texts).expect("it is right"), keys, 3)
    }

    fn written(texts: &[&str], keys: u64) -> String {
        let mut bytes = Vec::new();
        mix(texts, keys).write(&mut KeyRandom::new(1), &mut bytes);
        String::from_utf8(bytes).expect("a text").replace("\r\n", " ")
    }

    #[test]
    fn placeholders_become_keys_and_values() {
        assert_eq!(written(&["set"], 1), "*3 $3 SET $16 key:000000000000 $3 xxx ");
        assert_eq!(written(&["ping"], 1), "*1 $4 PING ");
        let text = "EVAL 'return 1' 2 __key__ a:__number__:b =__value__= :7";
        let expected = "*6 $4 EVAL $8 return 1 $1 2 $16 key:000000000000 $16 a:000000000000:b $5 =xxx= ";
        assert_eq!(written(&[text], 1), expected);
    }

    #[test]
    fn the_keys_of_a_command_are_drawn_one_by_one_within_the_key_space() {
        let text = written(&["mget"], 1000);
        let keys: Vec<_> = text.split(' ').filter(|word| word.starts_with("key:")).collect();
        let distinct: std::collections::BTreeSet<_> = keys.iter().collect();
        assert!(keys.len() == 10 && distinct.len() > 5, "{text}");
        assert!(keys.iter().all(|key| key["key:".len()..].parse::<u64>().is_ok_and(|number| number < 1000)), "{text}");
    }

    #[test]
    fn commands_are_drawn_by_weight() {
        let (mix, mut random) = (mix(&["get:80,set:15", "EXPIRE __key__ 60 :5"], 10), KeyRandom::new(7));
        let mut counts = [0_u32; 3];
        for _ in 0..100_000 {
            counts[mix.write(&mut random, &mut Vec::new())] += 1;
        }
        for (count, expected) in counts.into_iter().zip([80_000, 15_000, 5_000]) {
            assert!(count.abs_diff(expected) < 1_000, "{counts:?}");
        }
        assert_eq!(mix.commands[2].name, "EXPIRE __key__ 60");
    }

    #[test]
    fn a_bad_mix_is_refused_with_the_part_that_is_wrong() {
        for (text, part) in [
            ("", "knows no ''"),
            ("get,", "knows no ''"),
            ("get:80,fetch:20", "knows no 'fetch'"),
            ("get:0", "from 1 to"),
            ("get:many", "get:many"),
            ("SET key 'open", "quote"),
            (" '' a", "no name"),
        ] {
            let error = parse(&[text.to_owned()]).expect_err(text);
            assert!(error.contains(part), "{text}: {error}");
        }
        assert!(parse(&["get,".repeat(100) + "get"]).expect_err("too many").contains("64"));
    }
}
