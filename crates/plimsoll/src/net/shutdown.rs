//! [`shutdown`], for tasks.

use std::time::Duration;

use plimsoll_stack::ShutdownReport;

use crate::stack::Stack;

/// As [`Stack::shutdown`], for a task of tokio: it waits for the closed connections without
/// blocking the runtime, which needs its time driver. A [`Driver`](super::Driver) of the stack
/// continues meanwhile, and ends with the stack. Only the end of the stack's own threads blocks the
/// caller, for as long as they take to notice it.
///
/// If the future is dropped before it is ready, nothing has ended.
///
/// ```
/// use std::time::Duration;
/// use plimsoll::net::{self, TcpListener, TcpStream};
/// use tokio::io::{AsyncReadExt, AsyncWriteExt};
///
/// # let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
/// # runtime.block_on(async {
/// let stack = plimsoll::Stack::builder().loopback_only().build()?;
/// let listener = TcpListener::bind_on(&stack, "127.0.0.1:0").await?;
/// let mut near = TcpStream::connect_on(&stack, listener.local_addr()?).await?;
/// let (mut far, _) = listener.accept().await?;
/// near.write_all(b"last words").await?;
/// drop(near);
/// let reader = tokio::spawn(async move {
///     let mut text = String::new();
///     far.read_to_string(&mut text).await.map(|_| text)
/// });
/// let report = net::shutdown(stack, Duration::from_secs(5)).await;
/// assert!(report.is_delivered() && report.delivered > 0, "{report:?}");
/// assert_eq!(reader.await??, "last words");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub async fn shutdown(stack: Stack, grace: Duration) -> ShutdownReport {
    let begin = stack.core().begin_shutdown();
    // Whether there was time enough is in the report.
    let _ = tokio::time::timeout(grace, stack.drained()).await;
    stack.finish_shutdown(begin)
}
