//! Programs of users in a simulated network.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use plimsoll::{Connector, TcpListener, TcpStream, UdpSocket};
use plimsoll_sim::program::{ProgramError, Programs, SimHost};
use plimsoll_sim::{RunConfig, Scenario, run_programs};

const LOSSY: &str = r#"
limit = "600s"
faults_until = "300s"
host = [{ name = "a" }, { name = "b" }]
flow = []

[[link]]
between = ["a", "b"]
forward = { rate = "10mbit", delay = "15ms", loss = { independent = 0.05 } }
"#;

async fn read_some(stream: &TcpStream, buf: &mut [u8]) -> io::Result<usize> {
    poll_fn(|cx| stream.poll_read(cx, buf)).await
}

async fn write_all(stream: &TcpStream, mut data: &[u8]) -> io::Result<()> {
    while !data.is_empty() {
        let count = poll_fn(|cx| stream.poll_write(cx, data)).await?;
        data = &data[count..];
    }
    Ok(())
}

/// Sends back what comes, on any number of connections.
async fn echo(host: SimHost) -> Result<(), ProgramError> {
    let listener = TcpListener::bind(host.stack(), (host.address(false), 7))?;
    loop {
        let (stream, _peer) = listener.accept_async().await?;
        host.spawn(async move {
            let mut buf = [0; 4096];
            loop {
                match read_some(&stream, &mut buf).await? {
                    0 => return Ok(()),
                    count => write_all(&stream, &buf[..count]).await?,
                }
            }
        });
    }
}

async fn ask(host: SimHost, times: Rc<RefCell<Vec<Duration>>>) -> Result<(), ProgramError> {
    let server = (host.address_of("b", false)?, 7).into();
    // The server may not listen yet.
    host.sleep(Duration::from_millis(1)).await;
    let stream = Connector::new(host.stack()).connect_async(server).await?;
    let mut text = vec![0; 20_000];
    text.iter_mut().for_each(|byte| *byte = host.random() as u8);
    for _ in 0..20 {
        let begun = host.now();
        write_all(&stream, &text).await?;
        let (mut got, mut buf) = (Vec::new(), [0; 4096]);
        while got.len() < text.len() {
            match read_some(&stream, &mut buf).await? {
                0 => return Err("the server has hung up".into()),
                count => got.extend_from_slice(&buf[..count]),
            }
        }
        assert_eq!(got, text);
        times.borrow_mut().push(host.now().since(begun));
        host.sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

fn one_run(seed: u64) -> (u64, Vec<Duration>) {
    let scenario = Scenario::parse(LOSSY).expect("a scenario");
    let times = Rc::new(RefCell::new(Vec::new()));
    let seen = times.clone();
    let programs = Programs::new().daemon("b", echo).main("a", move |host| ask(host, seen.clone()));
    let outcome = run_programs(&scenario, seed, &RunConfig::default(), &programs);
    let outcome = outcome.expect("the scenario is one");
    assert_eq!(outcome.violation, None);
    assert!(!outcome.faults.is_empty());
    let times = times.borrow().clone();
    (outcome.trace, times)
}

#[test]
fn the_same_seed_gives_the_same_packets_and_times() {
    let (first, again, other) = (one_run(1), one_run(1), one_run(2));
    assert_eq!(first, again);
    assert_ne!(first.0, other.0);
    // A round trip at least, and without loss not much more.
    assert_eq!(first.1.len(), 20);
    let shortest = first.1.iter().min().unwrap();
    assert!((Duration::from_millis(30)..Duration::from_millis(120)).contains(shortest));
    assert!(first.1.iter().max().unwrap() > shortest, "{:?}", first.1);
}

#[test]
fn what_a_program_says_is_told() {
    let scenario = Scenario::parse(LOSSY).expect("a scenario");
    let run = |programs: &Programs| {
        let outcome = run_programs(&scenario, 1, &RunConfig::default(), programs);
        outcome.map(|outcome| outcome.violation.map(|violation| violation.to_string()))
    };
    let failing = Programs::new().main("a", |_| async { Err("it is out of tea".into()) });
    assert!(run(&failing).unwrap().unwrap().contains("no program fails: it is out of tea"));
    let endless = Programs::new().main("b", |_| std::future::pending());
    assert!(run(&endless).unwrap().unwrap().contains("every program ends: one on 'b' has not"));
    let nowhere = Programs::new().main("c", |_| async { Ok(()) });
    assert!(run(&nowhere).unwrap_err().to_string().contains("on 'c', and the hosts are a, b"));
}

#[test]
fn datagrams_arrive_or_do_not() {
    let scenario = Scenario::parse(LOSSY).expect("a scenario");
    let arrived = Rc::new(RefCell::new(0));
    let seen = arrived.clone();
    let programs = Programs::new()
        .daemon("b", move |host| {
            let seen = seen.clone();
            async move {
                let socket = UdpSocket::bind(host.stack(), (host.address(true), 9))?;
                socket.set_nonblocking(true)?;
                let mut buf = [0; 100];
                loop {
                    poll_fn(|cx| socket.poll_recv_ready(cx)).await?;
                    if socket.recv_from(&mut buf).is_ok() {
                        *seen.borrow_mut() += 1;
                    }
                }
            }
        })
        .main("a", |host: SimHost| async move {
            let socket = UdpSocket::bind(host.stack(), (host.address(true), 0))?;
            socket.set_nonblocking(true)?;
            let to = (host.address_of("b", true)?, 9);
            for _ in 0..200 {
                poll_fn(|cx| socket.poll_send_ready(cx)).await?;
                socket.send_to(&[7; 100], to)?;
                host.sleep(Duration::from_millis(2)).await;
            }
            host.sleep(Duration::from_secs(1)).await;
            Ok(())
        });
    let outcome = run_programs(&scenario, 3, &RunConfig::default(), &programs).unwrap();
    assert_eq!(outcome.violation, None);
    assert!((160..200).contains(&*arrived.borrow()), "{arrived:?}");
}

/// A crash ends a program, and the host starts it again.
#[test]
fn a_program_starts_again_with_its_host() {
    let crash = r#"event = [{ at = "2s", crash = { host = "b", for = "1s" } }]"#;
    let text = LOSSY.replace("flow = []", &format!("flow = []\n{crash}"));
    let scenario = Scenario::parse(&text).unwrap();
    let starts = Rc::new(RefCell::new(Vec::new()));
    let seen = starts.clone();
    let programs = Programs::new().main("b", move |host: SimHost| {
        let seen = seen.clone();
        async move {
            seen.borrow_mut().push(host.now());
            host.sleep(Duration::from_secs(5)).await;
            Ok(())
        }
    });
    let outcome = run_programs(&scenario, 3, &RunConfig::default(), &programs).unwrap();
    assert_eq!(outcome.violation, None);
    let starts = starts.borrow();
    assert_eq!(starts.len(), 2);
    assert_eq!(starts[1].since(starts[0]), Duration::from_secs(3));
}
