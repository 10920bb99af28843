//! Reads the device and hands segments to their connections.

use std::collections::HashMap;
use std::future::poll_fn;
use std::net::SocketAddrV4;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::ReadBuf;
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::{Interval, interval};

use crate::flow::{Device, Flow, SharedDevice, lock, share};
use crate::packet::{SYN, Segment};
use crate::{IpStackStream, IpStackTcpStream};

/// How often it is looked at what was lost.
const TICK: Duration = Duration::from_millis(50);
/// Packets after which ACKs are sent and readers woken, though there may be more.
const BATCH: usize = 32;
/// Batches after which other tasks have their turn. Who wakes itself wakes another thread of the
/// runtime as well, so that is not done often.
const BATCHES: usize = 8;

pub(crate) struct Driver {
    device: SharedDevice,
    mtu: usize,
    accepting: UnboundedSender<IpStackStream>,
    flows: HashMap<(SocketAddrV4, SocketAddrV4), Arc<Flow>>,
    /// Connections that packets of this batch were for.
    touched: Vec<Arc<Flow>>,
    buffer: Vec<u8>,
}

impl Driver {
    pub(crate) fn new(
        device: Pin<Box<dyn Device>>,
        mtu: usize,
        accepting: UnboundedSender<IpStackStream>,
    ) -> Driver {
        Driver {
            device: share(device),
            mtu,
            accepting,
            flows: HashMap::new(),
            touched: Vec::new(),
            buffer: vec![0; mtu],
        }
    }

    /// Runs until the device has ended.
    pub(crate) async fn run(mut self) {
        let mut ticks = interval(TICK);
        poll_fn(|cx| self.poll(cx, &mut ticks)).await;
    }

    fn poll(&mut self, cx: &mut Context<'_>, ticks: &mut Interval) -> Poll<()> {
        while ticks.poll_tick(cx).is_ready() {
            self.flows.retain(|_, flow| !flow.is_over());
            self.flows.values().for_each(|flow| flow.tick(cx, &self.device));
        }
        for packet in 1..=BATCH * BATCHES {
            let mut buffer = std::mem::take(&mut self.buffer);
            let mut into = ReadBuf::new(&mut buffer);
            let read = lock(&self.device).device.as_mut().poll_read(cx, &mut into);
            let len = into.filled().len();
            if let (Poll::Ready(Ok(())), Some(segment)) = (&read, Segment::parse(&buffer[..len])) {
                self.take(cx, &segment);
            }
            self.buffer = buffer;
            match read {
                Poll::Ready(Ok(())) if packet % BATCH == 0 => self.finish(cx),
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(_)) => return Poll::Ready(()),
                Poll::Pending => {
                    self.finish(cx);
                    return Poll::Pending;
                }
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn take(&mut self, cx: &mut Context<'_>, segment: &Segment<'_>) {
        let key = (segment.client, segment.server);
        if segment.flags & SYN != 0 {
            let flow = self.flows.entry(key).or_insert_with(|| {
                let flow = Arc::new(Flow::new(segment, self.mtu));
                let stream = IpStackTcpStream::new(flow.clone(), self.device.clone());
                let _ = self.accepting.send(IpStackStream::Tcp(stream));
                flow
            });
            flow.answer(cx, &self.device);
        } else if let Some(flow) = self.flows.get(&key)
            && flow.take(cx, segment, &self.device)
            && !self.touched.iter().any(|other| Arc::ptr_eq(other, flow))
        {
            self.touched.push(flow.clone());
        }
    }

    fn finish(&mut self, cx: &mut Context<'_>) {
        for flow in self.touched.drain(..) {
            flow.finish(cx, &self.device);
        }
    }
}
