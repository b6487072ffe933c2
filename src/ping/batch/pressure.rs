//! When replies may overflow the receive buffer before the next tick.
//!
//! Floor 2. While few enough probes are in flight that all their replies fit,
//! nothing is registered with the runtime and no reply wakes anybody. Above
//! that the sockets are watched until it has eased off.

use std::io;
use std::task::{Context, Poll};

use socket2::Socket;
use tokio::io::Interest;
use tokio::net::UdpSocket;
use tokio::runtime::Handle;

use super::lane::Lane;
use super::socket::Door;

impl Lane {
    /// Ready when a watched socket has something to read. Needs a tokio
    /// runtime with I/O only while pressed; without one it stays pending.
    pub(super) fn poll_pressed(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let room_bytes = self
            .doors
            .iter()
            .map(|door| door.buffer_bytes)
            .min()
            .unwrap_or(0);
        self.is_pressed = is_pressed(self.is_pressed, self.flight.in_flight_bytes(), room_bytes);
        let mut pressed = Poll::Pending;
        for door in &mut self.doors {
            if !self.is_pressed {
                door.watch = None;
            } else if door.poll_readable(cx).is_ready() {
                pressed = Poll::Ready(());
            }
        }
        pressed
    }
}

impl Door {
    fn poll_readable(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.watch.is_none() && Handle::try_current().is_ok() {
            self.watch = watch(&self.socket)
                .inspect_err(|fault| tracing::debug!(%fault, "cannot watch the ICMP socket"))
                .ok();
        }
        let Some(watch) = &self.watch else {
            return Poll::Pending;
        };
        // An error means that the runtime is shutting down.
        let Poll::Ready(Ok(())) = watch.poll_recv_ready(cx) else {
            return Poll::Pending;
        };
        // Forgets the readiness before the drain that follows, so that what
        // comes after the drain wakes anew.
        let nothing_read = || Err::<(), _>(io::ErrorKind::WouldBlock.into());
        drop(watch.try_io(Interest::READABLE, nothing_read));
        Poll::Ready(())
    }
}

/// Registers a second handle of the socket with the runtime. Tokio has no word
/// for ICMP; its UDP socket is a datagram socket whose readiness can be asked,
/// and unlike `AsyncFd` it can be made without unsafe code.
fn watch(socket: &Socket) -> io::Result<UdpSocket> {
    UdpSocket::from_std(socket.try_clone()?.into())
}

/// Pressed from three quarters of the buffer on, eased below one half.
fn is_pressed(was_pressed: bool, in_flight_bytes: usize, room_bytes: usize) -> bool {
    if was_pressed {
        in_flight_bytes >= room_bytes / 2 && in_flight_bytes > 0
    } else {
        in_flight_bytes > room_bytes / 4 * 3
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pressure_comes_at_three_quarters_and_goes_at_one_half() {
        assert!(!is_pressed(false, 750, 1000));
        assert!(is_pressed(false, 751, 1000));
        assert!(is_pressed(true, 500, 1000));
        assert!(!is_pressed(true, 499, 1000));
    }

    #[test]
    fn nothing_in_flight_is_no_pressure_even_without_a_buffer() {
        assert!(!is_pressed(false, 0, 0));
        assert!(!is_pressed(true, 0, 0));
    }
}
