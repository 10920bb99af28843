//! The page for Prometheus: what is in it, and that the parser of the format's authors reads it.
use std::io::{Read, Write};
use std::process::{Command, Stdio};

use plimsoll::device::memory_link;
use plimsoll::prometheus::{self, StackCollector};
use plimsoll::{Stack, TcpListener, TcpStream};
use prometheus_client::registry::Registry;

/// A client's stack that has sent something, and what must live meanwhile.
fn busy_stack() -> (Stack, impl Sized) {
    let (here, there) = memory_link::pair(Default::default());
    let client = Stack::builder().device(here).address("192.0.2.1/24").build().unwrap();
    let server = Stack::builder().device(there).address("192.0.2.2/24").build().unwrap();
    let listener = TcpListener::bind(&server, "192.0.2.2:80").unwrap();
    let ours = TcpListener::bind(&client, "192.0.2.1:90").unwrap();
    let mut near = TcpStream::connect(&client, "192.0.2.2:80").unwrap();
    let (mut far, _) = listener.accept().unwrap();
    near.write_all(b"ahoy").unwrap();
    far.read_exact(&mut [0; 4]).unwrap();
    (client, (server, listener, ours, near, far))
}

/// The value of the sample whose name and labels are `sample`.
fn value(page: &str, sample: &str) -> f64 {
    let line = page.lines().find_map(|line| line.strip_prefix(sample)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {sample} in\n{page}")).parse().unwrap()
}

#[test]
fn figures_of_all_kinds_are_in_the_page() {
    let (stack, _rest) = busy_stack();
    let page = prometheus::page(&stack);
    assert_eq!(value(&page, "plimsoll_connections{state=\"established\"}"), 1.0);
    assert_eq!(value(&page, "plimsoll_tcp_active_opens_total"), 1.0);
    assert_eq!(value(&page, "plimsoll_accept_queue_limit{listener=\"192.0.2.1:90\"}"), 4096.0);
    assert!(value(&page, "plimsoll_ip_ext_out_bytes_total") > 100.0);
    assert_eq!(value(&page, "plimsoll_busy_poll_seconds_total"), 0.0);
    let name = &stack.interfaces()[0].name;
    let interface = format!("interface=\"{name}\",index=\"0\"");
    assert_eq!(value(&page, &format!("plimsoll_interface_mtu_bytes{{{interface}}}")), 1500.0);
    let sent = value(&page, &format!("plimsoll_interface_transmit_packets_total{{{interface}}}"));
    assert!(sent >= 3.0, "{sent}");
    assert!(value(&page, "plimsoll_memory_limit_bytes") > 0.0);
}

#[test]
fn a_collector_of_a_stack_that_has_ended_tells_nothing() {
    let stack = Stack::builder().loopback_only().build_without_thread().unwrap();
    let mut registry = Registry::default();
    registry.register_collector(Box::new(StackCollector::new(&stack)));
    drop(stack);
    let mut page = String::new();
    prometheus_client::encoding::text::encode(&mut page, &registry).unwrap();
    assert_eq!(page, "# EOF\n");
}

/// Reads a page from its standard input, as strictly as the format is, and prints how many samples
/// it has.
const PARSE: &str = "
import sys
try:
    from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse
except ImportError:
    sys.exit(77)
families = list(parse(sys.stdin.read()))
for family in families:
    assert family.documentation, family.name
    assert family.type in ('counter', 'gauge'), family
print(sum(len(family.samples) for family in families))
";

#[test]
fn the_parser_of_the_authors_of_the_format_reads_it() {
    let (stack, _rest) = busy_stack();
    let page = prometheus::page(&stack);
    let python = Command::new("/usr/bin/python3")
        .args(["-c", PARSE])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let done = python.and_then(|mut python| {
        python.stdin.take().unwrap().write_all(page.as_bytes()).or_else(|error| {
            // It may have ended before it read.
            if error.kind() == std::io::ErrorKind::BrokenPipe { Ok(()) } else { Err(error) }
        })?;
        python.wait_with_output()
    });
    let missing = match &done {
        Ok(output) => output.status.code() == Some(77),
        Err(error) => error.kind() == std::io::ErrorKind::NotFound,
    };
    if missing {
        let what = "Debian's python3-prometheus-client is not installed";
        assert!(std::env::var_os("CI").is_none(), "{what}");
        return println!("left out: {what}");
    }
    let output = done.unwrap();
    assert!(output.status.success(), "{page}");
    let samples: usize = String::from_utf8(output.stdout).unwrap().trim().parse().unwrap();
    let lines = page.lines().filter(|line| !line.starts_with('#')).count();
    assert_eq!(samples, lines);
}
