//! Wrong tokens: they are counted by peer, logged, and answered later each time.
//!
//! The length of the token keeps strangers out. The gateway checks a wrong token as soon as a right one, so that a client
//! with the token never waits for others that guess behind the same address; the delay only slows a client that waits for
//! its answers.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use tokio::sync::Semaphore;
use tokio::time::Instant;

/// Wrong tokens of a peer that are answered at once: one was mistyped, or several clients start with an old one.
const UNDELAYED_FAILURES: u64 = 5;

/// How long the next one waits; each waits twice as long as the one before, up to the most.
const FIRST_WAIT: Duration = Duration::from_millis(100);
const MAX_WAIT: Duration = Duration::from_secs(5);

/// Requests that wait at the same time; more are answered at once that there are too many. Each holds a connection.
const MAX_WAITING: usize = 64;

/// Peers that are remembered; then the one is forgotten that has been quiet longest.
const MAX_PEERS: usize = 4_096;

/// After which time a peer that has been quiet is new again.
const PEER_TTL: Duration = Duration::from_secs(900);

/// Who has shown wrong tokens.
#[derive(Debug)]
pub(super) struct TokenThrottle {
    peers: Mutex<HashMap<IpAddr, PeerFailures>>,
    waiting: Semaphore,
    wrong: Counter,
}

#[derive(Clone, Copy, Debug)]
struct PeerFailures {
    count: u64,
    last: Instant,
}

/// Too many requests wait already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ThrottleFull;

impl TokenThrottle {
    /// None yet; `delay_wrong_token` counts them.
    pub(super) fn new(wrong: Counter) -> TokenThrottle {
        TokenThrottle { peers: Mutex::default(), waiting: Semaphore::new(MAX_WAITING), wrong }
    }

    /// Records a wrong token of a peer, and returns when the refusal may be sent.
    ///
    /// # Errors
    ///
    /// [`ThrottleFull`], at once.
    pub(super) async fn delay_wrong_token(&self, peer: Option<IpAddr>) -> Result<(), ThrottleFull> {
        self.wrong.inc();
        let count = self.count(peer.map_or(IpAddr::V6(Ipv6Addr::UNSPECIFIED), network));
        if count == 1 || count == UNDELAYED_FAILURES || count >= 10 && is_round(count) {
            let peer = peer.map_or_else(|| "an unknown address".to_owned(), |it| it.to_string());
            tracing::warn!(
                peer,
                count,
                "a request has shown a wrong token, or none that is known here"
            );
        }
        let wait = delay_after(count);
        if wait.is_zero() {
            return Ok(());
        }
        let _place = self.waiting.try_acquire().map_err(|_| ThrottleFull)?;
        tokio::time::sleep(wait).await;
        Ok(())
    }

    fn count(&self, peer: IpAddr) -> u64 {
        let now = Instant::now();
        let mut peers = self.peers();
        if peers.len() >= MAX_PEERS && !peers.contains_key(&peer) {
            peers.retain(|_, guessed| now.duration_since(guessed.last) < PEER_TTL);
            let quietest = peers.iter().min_by_key(|(_, guessed)| guessed.last);
            let quietest = quietest.map(|(peer, _)| *peer);
            if let Some(quietest) = quietest.filter(|_| peers.len() >= MAX_PEERS) {
                peers.remove(&quietest);
            }
        }
        let guessed = peers.entry(peer).or_insert(PeerFailures { count: 0, last: now });
        if now.duration_since(guessed.last) >= PEER_TTL {
            guessed.count = 0;
        }
        *guessed = PeerFailures { count: guessed.count + 1, last: now };
        guessed.count
    }

    fn peers(&self) -> MutexGuard<'_, HashMap<IpAddr, PeerFailures>> {
        self.peers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A peer has all addresses of an IPv6 network for itself.
fn network(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            if address.is_loopback() { peer } else { Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into() }
        }
        address => address,
    }
}

/// 10, 100, 1,000, ...: a guesser must not be able to fill the log.
fn is_round(count: u64) -> bool {
    let mut rest = count;
    while rest.is_multiple_of(10) && rest > 1 {
        rest /= 10;
    }
    rest == 1
}

fn delay_after(count: u64) -> Duration {
    let Some(doublings) = count.checked_sub(UNDELAYED_FAILURES + 1) else { return Duration::ZERO };
    let factor = 1_u32 << doublings.min(16);
    FIRST_WAIT.saturating_mul(factor).min(MAX_WAIT)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(last: u8) -> Option<IpAddr> {
        Some(IpAddr::from([192, 0, 2, last]))
    }

    #[tokio::test(start_paused = true)]
    async fn each_wrong_token_is_answered_later_up_to_a_bound_and_others_are_not() {
        let guesses = TokenThrottle::new(Counter::default());
        let mut waits = Vec::new();
        for _ in 0..20 {
            let began = Instant::now();
            guesses.delay_wrong_token(peer(1)).await.unwrap();
            waits.push(began.elapsed().as_millis());
        }
        assert_eq!(waits[..8], [0, 0, 0, 0, 0, 101, 201, 401].map(|ms: u128| ms - ms.min(1)));
        assert_eq!(waits[19], MAX_WAIT.as_millis());
        let began = Instant::now();
        guesses.delay_wrong_token(peer(2)).await.unwrap();
        assert_eq!(began.elapsed(), Duration::ZERO);
        assert_eq!(guesses.wrong.get(), 21);
        tokio::time::advance(PEER_TTL).await;
        let began = Instant::now();
        guesses.delay_wrong_token(peer(1)).await.unwrap();
        assert_eq!(began.elapsed(), Duration::ZERO, "a quiet peer is new again");
    }

    #[tokio::test(start_paused = true)]
    async fn neither_those_who_wait_nor_those_who_are_remembered_grow_without_end() {
        let guesses = TokenThrottle::new(Counter::default());
        for _ in 0..UNDELAYED_FAILURES {
            guesses.delay_wrong_token(peer(1)).await.unwrap();
        }
        let all = (0..MAX_WAITING + 10).map(|_| guesses.delay_wrong_token(peer(1)));
        let told = futures_util::future::join_all(all).await;
        assert_eq!(told.iter().filter(|told| **told == Err(ThrottleFull)).count(), 10);
        for number in 0..2 * MAX_PEERS as u32 {
            guesses.delay_wrong_token(Some(IpAddr::from(number.to_be_bytes()))).await.unwrap();
        }
        assert_eq!(guesses.peers().len(), MAX_PEERS);
    }

    #[test]
    fn a_peer_is_its_network() {
        let of = |text: &str| network(text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::2:3:4:5"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
        assert_ne!(of("127.0.0.1"), of("127.0.0.2"));
    }
}
