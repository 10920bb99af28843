//! An echo server and its client, two programs with the async sockets of `plimsoll`, on a path that
//! loses packets. The seed is the argument: the same seed prints the same times, always.
//! `cargo run -p plimsoll-sim --example lossy_echo -- 7`

use std::future::poll_fn;
use std::time::Duration;

use plimsoll::{Connector, TcpListener, TcpStream};
use plimsoll_sim::program::{ProgramError, Programs, SimHost};
use plimsoll_sim::{RunConfig, Scenario, run_programs};

const SCENARIO: &str = r#"
limit = "120s"
faults_until = "60s"
host = [{ name = "client" }, { name = "server" }]
flow = []

[[link]]
between = ["client", "server"]
forward = { rate = "2mbit", delay = "30ms", loss = { independent = 0.1 } }
"#;

async fn read(stream: &TcpStream, buf: &mut [u8]) -> std::io::Result<usize> {
    poll_fn(|cx| stream.poll_read(cx, buf)).await
}

async fn write_all(stream: &TcpStream, mut data: &[u8]) -> std::io::Result<()> {
    while !data.is_empty() {
        let count = poll_fn(|cx| stream.poll_write(cx, data)).await?;
        data = &data[count..];
    }
    Ok(())
}

async fn server(host: SimHost) -> Result<(), ProgramError> {
    let listener = TcpListener::bind(host.stack(), (host.address(false), 7))?;
    let (stream, _peer) = listener.accept_async().await?;
    let mut buf = [0; 1000];
    loop {
        match read(&stream, &mut buf).await? {
            0 => return Ok(()),
            count => write_all(&stream, &buf[..count]).await?,
        }
    }
}

async fn client(host: SimHost) -> Result<(), ProgramError> {
    let server = (host.address_of("server", false)?, 7).into();
    let stream = Connector::new(host.stack()).connect_async(server).await?;
    let begun = host.now();
    for number in 0..20_u8 {
        let asked = host.now();
        write_all(&stream, &[number; 100]).await?;
        let (mut got, mut buf) = (0, [0; 100]);
        while got < buf.len() {
            match read(&stream, &mut buf[got..]).await? {
                0 => return Err("the server has hung up".into()),
                count => got += count,
            }
        }
        println!("{number:2}: sent at {:?}, {:?}", asked.since(begun), host.now().since(asked));
        host.sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let seed = std::env::args().nth(1).map_or(Ok(0), |arg| arg.parse())?;
    let programs = Programs::new().daemon("server", server).main("client", client);
    let outcome =
        run_programs(&Scenario::parse(SCENARIO)?, seed, &RunConfig::default(), &programs)?;
    println!(
        "{} packets, {} faults, trace {:016x}",
        outcome.packets,
        outcome.faults.len(),
        outcome.trace
    );
    outcome.violation.map_or(Ok(()), |violation| Err(violation.to_string().into()))
}
