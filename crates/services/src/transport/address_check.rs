//! Address checks for untrusted host names: only public addresses, and those that the operator lists, may
//! be connected to.
//!
//! The check runs when the connection is opened (`connect.rs`), after name resolution. It is
//! repeated for every connection, which also covers names that resolve to another address later (DNS
//! rebinding).

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use crate::body::BodyError;

/// The addresses that a target may have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum ReachableAddresses {
    /// All addresses: the operator configured the target.
    #[default]
    Unrestricted,
    /// Public addresses, and the listed ones.
    Public(Arc<[(IpNet, Option<u16>)]>),
}

/// The error for an address that is neither public nor listed explicitly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} is not public, and no pattern of `hosts` lists it")]
struct PrivateAddressError(SocketAddr);

/// Special-purpose IPv4 networks that are not public (the registry of RFC 6890).
const PRIVATE_V4: [Ipv4Net; 15] = [
    v4([0, 0, 0, 0], 8),
    v4([10, 0, 0, 0], 8),
    v4([100, 64, 0, 0], 10),
    v4([127, 0, 0, 0], 8),
    v4([169, 254, 0, 0], 16),
    v4([172, 16, 0, 0], 12),
    v4([192, 0, 0, 0], 24),
    v4([192, 0, 2, 0], 24),
    v4([192, 88, 99, 0], 24),
    v4([192, 168, 0, 0], 16),
    v4([198, 18, 0, 0], 15),
    v4([198, 51, 100, 0], 24),
    v4([203, 0, 113, 0], 24),
    v4([224, 0, 0, 0], 4),
    v4([240, 0, 0, 0], 4),
];
/// The public IPv6 networks, and the exceptions within: protocol assignments (including Teredo),
/// documentation prefixes, and 6to4, which embeds an IPv4 address.
const GLOBAL_V6: Ipv6Net = v6([0x2000, 0], 3);
const PRIVATE_V6: [Ipv6Net; 4] =
    [v6([0x2001, 0], 23), v6([0x2001, 0xdb8], 32), v6([0x2002, 0], 16), v6([0x3fff, 0], 20)];
/// The prefix of IPv6-only networks for an IPv4 address in the last four bytes (NAT64, RFC 6052).
const NAT64: Ipv6Net = v6([0x64, 0xff9b], 96);

const fn v4([a, b, c, d]: [u8; 4], prefix: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), prefix)
}

const fn v6([a, b]: [u16; 2], prefix: u8) -> Ipv6Net {
    Ipv6Net::new_assert(Ipv6Addr::new(a, b, 0, 0, 0, 0, 0, 0), prefix)
}

impl ReachableAddresses {
    /// Checks that this address may be connected to.
    pub(crate) fn check_address(&self, address: SocketAddr) -> io::Result<()> {
        let Self::Public(written) = self else { return Ok(()) };
        let (ip, port) = (address.ip().to_canonical(), address.port());
        let is_written = |(network, only): &(IpNet, Option<u16>)| {
            network.contains(&ip) && only.is_none_or(|only| only == port)
        };
        match is_public_address(ip) || written.iter().any(is_written) {
            true => Ok(()),
            false => Err(io::Error::other(PrivateAddressError(address))),
        }
    }
}

/// Whether a connection was refused because the address is private.
pub(crate) fn is_private_address_error(error: &BodyError) -> bool {
    let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
    inner.is_some_and(|inner| inner.is::<PrivateAddressError>())
}

fn is_public_address(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => PRIVATE_V4.iter().all(|private| !private.contains(&ip)),
        IpAddr::V6(ip) if NAT64.contains(&ip) => {
            let [.., a, b, c, d] = ip.octets();
            is_public_address(Ipv4Addr::new(a, b, c, d).into())
        }
        IpAddr::V6(ip) => GLOBAL_V6.contains(&ip) && PRIVATE_V6.iter().all(|private| !private.contains(&ip)),
    }
}
