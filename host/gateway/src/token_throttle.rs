//! Counts, logs and delays wrong tokens per client address.
//!
//! Security comes from the token's length. Tokens are checked before any delay, so a client with the right token
//! never waits, even behind an address from which others guess.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use tokio::sync::Semaphore;
use tokio::time::Instant;

/// Wrong tokens per address without a delay, for typos or several clients with an old token.
const UNDELAYED_FAILURES: u64 = 5;

/// The first delay. Each following one doubles, up to the maximum.
const FIRST_WAIT: Duration = Duration::from_millis(100);
const MAX_WAIT: Duration = Duration::from_secs(5);

/// Responses delayed at a time, since each holds a connection. More get 429 at once.
const MAX_WAITING: usize = 64;

/// Addresses remembered; the least recently failing one is dropped.
const MAX_PEERS: usize = 4_096;

/// Time without failures after which an address is forgotten.
const PEER_TTL: Duration = Duration::from_secs(900);

/// Wrong tokens by address.
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

/// Too many responses are delayed already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ThrottleFull;

impl TokenThrottle {
    /// `wrong` counts all wrong tokens.
    pub(super) fn new(wrong: Counter) -> TokenThrottle {
        TokenThrottle { peers: Mutex::default(), waiting: Semaphore::new(MAX_WAITING), wrong }
    }

    /// Records a wrong token, and returns when the error may be sent.
    ///
    /// # Errors
    ///
    /// [`ThrottleFull`], at once.
    pub(super) async fn delay_wrong_token(&self, peer: Option<IpAddr>) -> Result<(), ThrottleFull> {
        self.wrong.inc();
        let count = self.count(peer.map_or(IpAddr::V6(Ipv6Addr::UNSPECIFIED), network));
        if count == 1 || count == UNDELAYED_FAILURES || count >= 10 && is_round(count) {
            let peer =
                peer.map_or_else(|| "an unknown address".to_owned(), |peer| peer.to_string());
            tracing::warn!(peer, count, "wrong token");
        }
        let wait = delay_after(count);
        if wait.is_zero() {
            return Ok(());
        }
        // Bounded: each delayed response holds a connection.
        let _place = self.waiting.try_acquire().map_err(|_| ThrottleFull)?;
        tokio::time::sleep(wait).await;
        Ok(())
    }

    fn count(&self, peer: IpAddr) -> u64 {
        let now = Instant::now();
        let mut peers = self.peers();
        if peers.len() >= MAX_PEERS && !peers.contains_key(&peer) {
            peers.retain(|_, failures| now.duration_since(failures.last) < PEER_TTL);
            let quietest = peers.iter().min_by_key(|(_, failures)| failures.last);
            let quietest = quietest.map(|(peer, _)| *peer);
            if let Some(quietest) = quietest.filter(|_| peers.len() >= MAX_PEERS) {
                peers.remove(&quietest);
            }
        }
        let failures = peers.entry(peer).or_insert(PeerFailures { count: 0, last: now });
        if now.duration_since(failures.last) >= PEER_TTL {
            failures.count = 0;
        }
        *failures = PeerFailures { count: failures.count + 1, last: now };
        failures.count
    }

    fn peers(&self) -> MutexGuard<'_, HashMap<IpAddr, PeerFailures>> {
        self.peers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The network of an address: an IPv6 client has a whole /64.
fn network(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            if address.is_loopback() { peer } else { Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into() }
        }
        address => address,
    }
}

/// 10, 100, 1,000, ...: guessing must not fill the log.
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
    async fn the_delay_grows_per_peer_up_to_a_maximum() {
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
    async fn waiting_responses_and_remembered_peers_are_bounded() {
        let guesses = TokenThrottle::new(Counter::default());
        for _ in 0..UNDELAYED_FAILURES {
            guesses.delay_wrong_token(peer(1)).await.unwrap();
        }
        let all = (0..MAX_WAITING + 10).map(|_| guesses.delay_wrong_token(peer(1)));
        let results = futures_util::future::join_all(all).await;
        assert_eq!(results.iter().filter(|result| **result == Err(ThrottleFull)).count(), 10);
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
