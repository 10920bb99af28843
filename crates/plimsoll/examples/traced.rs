//! Follows the life of a connection with the crate tracing.
//!
//! ```sh
//! cargo run --example traced --features tracing
//! ```

use std::io::{Read, Write};

use plimsoll::{Stack, TcpListener, TcpStream};
use tracing_subscriber::fmt::format::FmtSpan;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    tracing_subscriber::fmt().with_span_events(FmtSpan::CLOSE).init();

    let stack = Stack::builder().loopback_only().build()?;
    let listener = TcpListener::bind(&stack, "127.0.0.1:80")?;
    let mut near = TcpStream::connect(&stack, listener.local_addr()?)?;
    let (mut far, _peer) = listener.accept()?;
    near.write_all(b"ahoy")?;
    drop(near);
    let mut text = String::new();
    far.read_to_string(&mut text)?;
    drop(far);
    stack.shutdown(std::time::Duration::from_secs(5));
    Ok(())
}
