//! Zone files, their errors with line and column, and answers about zones.

use tidegate_dns::{DnsError, Name, Question, RecordType, ResponseCode, Zone, ZoneErrorKind, ZoneLimits};

use crate::support::name;

const FILE: &str = r#"$ORIGIN tides.example.
$TTL 1h ; an hour
@       IN SOA  ns root (
                2026112701 ; serial
                2h 1h 2w
                300 )       ; minimum
        NS      ns
        MX      10 mail
ns      60 IN A 192.0.2.53
        IN 60 AAAA 2001:db8::53
mail    A       192.0.2.25
www     CNAME   mail
loop    CNAME   pool
pool    CNAME   loop
out     CNAME   elsewhere.test.
texts   TXT     "two words" "semi;colon" plain\;
*.wild  A       192.0.2.99
a.empty.wild A  192.0.2.98
child   NS      ns.child
        DS      1 13 2 00ff
ns.child A      192.0.2.77
old     DNAME   new
x.new   A       192.0.2.88
"#;

fn zone() -> Zone {
    Zone::parse(FILE, None).unwrap_or_else(|error| panic!("{error}"))
}

fn ask(text: &str, record_type: RecordType) -> (ResponseCode, bool, Vec<String>, Vec<String>, usize) {
    let answer = zone().answer(&Question::new(name(text), record_type));
    let texts = |records: &[tidegate_dns::Record]| {
        records.iter().map(|record| format!("{} {} {}", record.name, record.record_type(), record.data)).collect()
    };
    let additional = answer.additionals.len();
    (answer.response_code, answer.is_authoritative, texts(&answer.answers), texts(&answer.authorities), additional)
}

const SOA: &str = "tides.example. SOA ns.tides.example. root.tides.example. 2026112701 7200 3600 1209600 300";

#[test]
fn names_that_exist_are_answered_with_their_records() {
    let (code, aa, answers, _, additional) = ask("TIDES.example", RecordType::MX);
    assert_eq!((code, aa, additional), (ResponseCode::NOERROR, true, 1));
    assert_eq!(answers, ["TIDES.example. MX 10 mail.tides.example."]);
    assert_eq!(ask("ns.tides.example", RecordType::AAAA).2, ["ns.tides.example. AAAA 2001:db8::53"]);
    assert_eq!(
        ask("texts.tides.example", RecordType::TXT).2,
        [r#"texts.tides.example. TXT "two words" "semi;colon" "plain;""#]
    );
    assert_eq!((zone().record_count(), zone().origin()), (18, &name("tides.example")));
}

#[test]
fn aliases_are_followed_within_the_zone() {
    let www = ask("www.tides.example", RecordType::A).2;
    assert_eq!(www, ["www.tides.example. CNAME mail.tides.example.", "mail.tides.example. A 192.0.2.25"]);
    assert_eq!(ask("www.tides.example", RecordType::CNAME).2.len(), 1);
    assert_eq!(ask("loop.tides.example", RecordType::A).2.len(), 2);
    assert_eq!(ask("out.tides.example", RecordType::A).2, ["out.tides.example. CNAME elsewhere.test."]);
    let old = ask("x.old.tides.example", RecordType::A).2;
    assert_eq!(old.len(), 3, "{old:?}");
    assert_eq!(old[1], "x.old.tides.example. CNAME x.new.tides.example.");
    assert_eq!(ask("old.tides.example", RecordType::A).2.len(), 0, "the owner of a DNAME is no alias");
}

#[test]
fn negative_answers_have_the_soa() {
    let (code, _, answers, authorities, _) = ask("none.tides.example", RecordType::A);
    assert_eq!((code, answers.len(), authorities), (ResponseCode::NXDOMAIN, 0, vec![SOA.to_owned()]));
    let (code, _, answers, authorities, _) = ask("mail.tides.example", RecordType::AAAA);
    assert_eq!((code, answers.len(), authorities), (ResponseCode::NOERROR, 0, vec![SOA.to_owned()]));
    let answer = zone().answer(&Question::new(name("none.tides.example"), RecordType::A));
    assert_eq!(answer.authorities[0].ttl, 300);
}

#[test]
fn wildcards_cover_names_that_do_not_exist() {
    assert_eq!(ask("a.b.wild.tides.example", RecordType::A).2, ["a.b.wild.tides.example. A 192.0.2.99"]);
    assert_eq!(ask("a.wild.tides.example", RecordType::AAAA).0, ResponseCode::NOERROR);
    // A name without records that has names below it exists, so the wildcard does not cover it (RFC 4592 §2.2.2).
    let (code, _, answers, _, _) = ask("empty.wild.tides.example", RecordType::A);
    assert_eq!((code, answers.len()), (ResponseCode::NOERROR, 0));
    assert_eq!(ask("b.empty.wild.tides.example", RecordType::A).0, ResponseCode::NXDOMAIN);
}

#[test]
fn names_below_a_delegation_are_referred() {
    for text in ["child.tides.example", "www.child.tides.example", "ns.child.tides.example"] {
        let (code, aa, answers, authorities, additional) = ask(text, RecordType::A);
        assert_eq!((code, aa, answers.len(), additional), (ResponseCode::NOERROR, false, 0, 1), "{text}");
        assert_eq!(authorities, ["child.tides.example. NS ns.child.tides.example."]);
    }
    let (_, aa, answers, _, _) = ask("child.tides.example", RecordType::DS);
    assert!(aa && answers.len() == 1);
}

#[test]
fn other_zones_transfers_and_any_are_of_no_use_to_an_attacker() {
    assert_eq!(ask("example", RecordType::A).0, ResponseCode::REFUSED);
    assert_eq!(ask("tides.example", RecordType::AXFR).0, ResponseCode::REFUSED);
    let any = ask("tides.example", RecordType::ANY);
    assert_eq!((any.2, any.3.len(), any.4), (vec![r#"tides.example. HINFO "RFC8482" """#.to_owned()], 0, 0));
}

#[test]
fn errors_have_line_and_column() {
    let head = "$ORIGIN a.\n@ 60 SOA ns root 1 2 3 4 5\n";
    let cases: &[(&str, usize, usize, ZoneErrorKind)] = &[
        ("www A 192.0.2\n", 3, 7, ZoneErrorKind::Data(DnsError::DataText)),
        ("www A\n", 3, 6, ZoneErrorKind::Data(DnsError::DataText)),
        ("www MX ten mail\n", 3, 8, ZoneErrorKind::Data(DnsError::DataText)),
        ("www A 192.0.2.1 more\n", 3, 17, ZoneErrorKind::Data(DnsError::DataText)),
        ("\n\n  www\n", 5, 3, ZoneErrorKind::Type),
        ("www BOGUS x\n", 3, 5, ZoneErrorKind::Type),
        ("www\n", 3, 4, ZoneErrorKind::Type),
        ("www CH A 1.2.3.4\n", 3, 5, ZoneErrorKind::Class),
        ("www ANY x\n", 3, 5, ZoneErrorKind::MetaType),
        ("www TSIG x\n", 3, 5, ZoneErrorKind::MetaType),
        ("www 2147483648 A 1.2.3.4\n", 3, 5, ZoneErrorKind::Ttl),
        ("www 1x A 1.2.3.4\n", 3, 5, ZoneErrorKind::Ttl),
        ("a..b A 1.2.3.4\n", 3, 1, ZoneErrorKind::Name(DnsError::NameText)),
        ("www.b. A 1.2.3.4\n", 3, 1, ZoneErrorKind::OutOfZone),
        ("www TXT \"open\n", 3, 9, ZoneErrorKind::Quote),
        ("www TXT ( a\nb\n", 3, 9, ZoneErrorKind::Parenthesis),
        ("www A 1.2.3.4 )\n", 3, 15, ZoneErrorKind::Parenthesis),
        ("$INCLUDE other\n", 3, 1, ZoneErrorKind::Directive),
        ("$TTL x\n", 3, 6, ZoneErrorKind::Ttl),
        ("$ORIGIN\n", 3, 1, ZoneErrorKind::Directive),
        ("@ SOA ns root 1 2 3 4 5\n", 3, 1, ZoneErrorKind::Soa),
        ("www CNAME x\nwww A 1.2.3.4\n", 4, 1, ZoneErrorKind::CnameAndOther),
        ("www A 1.2.3.4\nwww CNAME x\n", 4, 1, ZoneErrorKind::CnameAndOther),
    ];
    for (text, line, column, kind) in cases {
        let error = Zone::parse(&format!("{head}{text}"), None).expect_err(text);
        assert_eq!((error.line, error.column, error.kind), (*line, *column, *kind), "{text}: {error}");
    }
    let kind = |text: &str| Zone::parse(text, None).expect_err(text).kind;
    assert_eq!(kind(""), ZoneErrorKind::Empty);
    assert_eq!(kind("www 60 A 1.2.3.4"), ZoneErrorKind::NoOrigin);
    assert_eq!(kind("a. 60 A 1.2.3.4"), ZoneErrorKind::Soa);
    assert_eq!(kind("a. SOA . . 1 2 3 4 5"), ZoneErrorKind::NoTtl);
    assert_eq!(kind("  60 SOA . . 1 2 3 4 5"), ZoneErrorKind::NoOwner);
    let limits = ZoneLimits { records_max: 1 };
    let error = Zone::parse_with("a. 60 SOA . . 1 2 3 4 5\nb.a. A 1.2.3.4", None, limits).expect_err("two records");
    assert_eq!((error.line, error.kind), (2, ZoneErrorKind::TooManyRecords));
}

#[test]
fn no_text_makes_the_parser_panic() {
    use tidegate_testkit::{Random, seeds};
    for seed in seeds(2_000) {
        let mut random = Random::new(seed);
        let mut file = FILE.as_bytes().to_vec();
        for _ in 0..=random.below(5) {
            let at = random.below(file.len());
            file[at] = *random.pick(b"\\\"();$@\n \t.0a\xc3");
        }
        if let Ok(zone) = Zone::parse(&String::from_utf8_lossy(&file), Some(&Name::root())) {
            let _ = zone.answer(&Question::new(name("x.old.tides.example"), RecordType::A));
        }
    }
}
