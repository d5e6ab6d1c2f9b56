//! Record data in presentation form, both ways.

use tidegate_dns::{DnsError, Name, Rdata, RecordData, RecordType};

use crate::support::name;

#[test]
fn data_in_presentation_form_are_the_same_again() {
    let cases: &[(&str, &str)] = &[
        ("A", "192.0.2.1"),
        ("AAAA", "2001:db8::1"),
        ("NS", "ns.example."),
        ("SOA", "ns.example. root.example. 2026112701 7200 3600 1209600 300"),
        ("MX", "0 ."),
        ("TXT", r#""a b" "\"\\" "\000\255;""#),
        ("HINFO", r#""x" "y""#),
        ("SRV", "10 20 853 ns.example."),
        ("NAPTR", r#"100 10 "u" "E2U+sip" "!^.*$!sip:a@b!" ."#),
        ("DNAME", "example."),
        ("CAA", r#"0 issue "ca.example; a=b""#),
        ("TLSA", "3 1 1 00ff"),
        ("SSHFP", "4 2 00ff"),
        ("DS", "60485 5 1 2bb183af5f22588179a53b0a98631fad1a292118"),
        ("DNSKEY", "256 3 13 dGlkZWdhdGU="),
        ("RRSIG", "A 5 3 86400 20030322173103 20030220173103 2642 example.com. dGlkZQ=="),
        ("NSEC", "host.example.com. A MX RRSIG NSEC TYPE1234"),
        ("NSEC3", "1 1 12 aabbccdd 2t7b4g4vsa5smi47k61mv5bv1a22bojr MX RRSIG"),
        ("NSEC3PARAM", "1 0 12 -"),
        ("SVCB", "0 foo.example.com."),
        ("SVCB", r#"16 foo.example.org. mandatory=alpn,ipv4hint alpn="h2,h3-19" ipv4hint=192.0.2.1"#),
        ("HTTPS", "1 . no-default-alpn"),
        ("SVCB", r#"1 foo.example.com. key667="hello\210qoo""#),
        ("SVCB", r#"1 foo.example.com. ipv6hint=2001:db8::1,2001:db8::53:1"#),
        ("SVCB", r#"16 foo.example.org. alpn="f\\\\oo\\,bar,h2""#),
        ("TYPE4711", "\\# 0"),
        ("TYPE4711", "\\# 3 00ff10"),
    ];
    for (record_type, text) in cases {
        let record_type: RecordType = record_type.parse().expect("a type");
        let data = Rdata::parse(record_type, text, &Name::root()).unwrap_or_else(|error| panic!("{text}: {error}"));
        let again = data.to_string();
        let parsed = Rdata::parse(record_type, &again, &Name::root()).expect("its own form");
        assert_eq!(parsed, data, "{text} became {again}");
        assert_eq!(&again, text);
        let generic = format!("\\# {} {}", data.wire().len(), hex(data.wire()));
        assert_eq!(Rdata::parse(record_type, &generic, &Name::root()), Ok(data), "{generic}");
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn names_in_data_are_relative_to_the_origin() {
    let data = Rdata::parse(RecordType::MX, "10 mail", &name("tides.example")).expect("it is valid");
    assert_eq!(data, Rdata::mx(10, &name("mail.tides.example")));
    assert_eq!(Rdata::parse(RecordType::NS, "@", &name("a")), Ok(Rdata::ns(&name("a"))));
}

#[test]
fn texts_that_are_no_data_are_refused() {
    let cases: &[(RecordType, &str)] = &[
        (RecordType::A, "192.0.2"),
        (RecordType::A, "192.0.2.1 x"),
        (RecordType::A, ""),
        (RecordType::AAAA, "192.0.2.1"),
        (RecordType::MX, "65536 a."),
        (RecordType::MX, "+1 a."),
        (RecordType::MX, "1"),
        (RecordType::TXT, ""),
        (RecordType::TXT, "\"open"),
        (RecordType::TXT, r"\256"),
        (RecordType::DS, "1 1 1 0"),
        (RecordType::SVCB, "1 . port=80 port=81"),
        (RecordType::SVCB, "1 . port=x"),
        (RecordType::SVCB, "1 . unknown=1"),
        (RecordType::SVCB, "1 . alpn="),
        (RecordType::NSEC, "a. NOTYPE"),
        (RecordType::NSEC3, "1 1 1 - zz! A"),
        (RecordType::RRSIG, "A 5 3 1 20261332000000 1 1 a. dGlkZQ=="),
        (RecordType(4_711), "text"),
        (RecordType(4_711), "\\# 2 00"),
        (RecordType::A, "\\# 3 000000"),
        (RecordType::CNAME, "\\# 2 c000"),
    ];
    for (record_type, text) in cases {
        assert!(Rdata::parse(*record_type, text, &Name::root()).is_err(), "{record_type} {text}");
    }
    let long = format!("\"{}\"", "a".repeat(256));
    assert_eq!(Rdata::parse(RecordType::TXT, &long, &Name::root()), Err(DnsError::DataText));
}

#[test]
fn a_service_binding_has_its_parameters() {
    let text = "1 . mandatory=ipv4hint,key667 alpn=h2 port=443 ipv4hint=192.0.2.1,192.0.2.2 ech=dGlkZQ== key667=x";
    let data = Rdata::parse(RecordType::HTTPS, text, &Name::root()).expect("it is valid");
    let RecordData::Svcb(service) = data.view() else { panic!("{data:?}") };
    assert!(service.target.is_root() && !service.has_no_default_alpn());
    assert_eq!((service.ipv4_hints().count(), service.ech()), (2, Some(&b"tide"[..])));
    assert!(service.needs_unknown_key(|key| key < 7) && !service.needs_unknown_key(|_| true));
    let keys: Vec<u16> = service.params().map(|(key, _)| key).collect();
    assert_eq!(keys, [0, 1, 3, 4, 5, 667]);
}
