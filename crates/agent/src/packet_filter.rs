//! The filter of a capture: a program of classic BPF that the kernel runs on each packet of a link, so that only packets
//! between given addresses are copied to this process.
//!
//! The encoding is that of `linux/filter.h` and `linux/bpf_common.h`: an instruction has a code (class, size, mode), the
//! numbers of instructions to skip where a comparison holds and where it does not, and an operand. The socket strips the
//! header of the link (`SOCK_DGRAM`), so that offsets count from the IP header, whether the link is Ethernet, or a tunnel
//! that has no header of its own (IPIP, WireGuard).

use std::net::Ipv4Addr;

/// `struct sock_filter`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Instruction {
    pub(crate) code: u16,
    pub(crate) jump_if_true: u8,
    pub(crate) jump_if_false: u8,
    pub(crate) operand: u32,
}

/// `BPF_LD | BPF_W | BPF_ABS`: a word of the packet, in host byte order.
const LOAD_WORD: u16 = 0x20;
/// `BPF_LD | BPF_B | BPF_ABS`: a byte of the packet.
const LOAD_BYTE: u16 = 0x30;
/// `BPF_ALU | BPF_AND | BPF_K`.
const AND: u16 = 0x54;
/// `BPF_JMP | BPF_JEQ | BPF_K`.
const JUMP_IF_EQUAL: u16 = 0x15;
/// `BPF_JMP | BPF_JA`: an unconditional jump, which reaches farther than a conditional one.
const JUMP: u16 = 0x05;
/// `BPF_RET | BPF_K`: the end, with the number of bytes to keep.
const RETURN: u16 = 0x06;

/// `SKF_AD_OFF + SKF_AD_PROTOCOL`: not in the packet, but what the kernel knows of it: its EtherType.
const PROTOCOL: u32 = 0xffff_f000;
const ETHERTYPE_IPV4: u32 = 0x0800;
const IP_PROTOCOL_TCP: u32 = 6;

/// Offsets in the IPv4 header.
const OF_PROTOCOL: u32 = 9;
const OF_SOURCE: u32 = 12;
const OF_DESTINATION: u32 = 16;

const NOTHING: u32 = 0;
const WHOLE: u32 = u32::MAX;

/// Two instructions compare one address, twice; a program has at most 4,096 (`BPF_MAXINSNS`), and each costs time on every
/// packet of the link.
const MOST_ADDRESSES: usize = 256;

/// Which packets a capture gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacketFilter(Vec<Instruction>);

impl PacketFilter {
    /// All TCP over IPv4.
    #[must_use]
    pub fn tcp() -> Self {
        let mut program = tcp_over_ipv4();
        program.push(returns(WHOLE));
        Self(program)
    }

    /// TCP over IPv4 from any of these addresses to any of them. With very many addresses, others that differ from them in
    /// their last bits only pass as well: who reads the packets has to compare addresses again.
    #[must_use]
    pub fn between(addresses: &[Ipv4Addr]) -> Self {
        let (mask, networks) = networks(addresses);
        let mut program = tcp_over_ipv4();
        for offset in [OF_SOURCE, OF_DESTINATION] {
            program.push(plain(LOAD_WORD, offset));
            program.push(plain(AND, mask));
            program.extend(one_of(&networks));
        }
        program.push(returns(WHOLE));
        Self(program)
    }

    pub(crate) fn program(&self) -> &[Instruction] {
        &self.0
    }
}

fn plain(code: u16, operand: u32) -> Instruction {
    Instruction {
        code,
        jump_if_true: 0,
        jump_if_false: 0,
        operand,
    }
}

fn returns(bytes: u32) -> Instruction {
    plain(RETURN, bytes)
}

/// Goes on after the next instruction if the value is equal, and to the next one if not.
fn skip_next_if_equal(value: u32) -> Instruction {
    Instruction {
        jump_if_true: 1,
        ..plain(JUMP_IF_EQUAL, value)
    }
}

fn tcp_over_ipv4() -> Vec<Instruction> {
    vec![
        plain(LOAD_WORD, PROTOCOL),
        skip_next_if_equal(ETHERTYPE_IPV4),
        returns(NOTHING),
        plain(LOAD_BYTE, OF_PROTOCOL),
        skip_next_if_equal(IP_PROTOCOL_TCP),
        returns(NOTHING),
    ]
}

/// Goes on behind these instructions if the value is one of these; otherwise ends with nothing.
fn one_of(values: &[u32]) -> Vec<Instruction> {
    let mut program = Vec::new();
    for (index, value) in values.iter().enumerate() {
        program.push(Instruction {
            jump_if_false: 1,
            ..plain(JUMP_IF_EQUAL, *value)
        });
        // Over the comparisons with those that follow, and the end.
        let following = values.len() - index - 1;
        program.push(plain(JUMP, 2 * following as u32 + 1));
    }
    program.push(returns(NOTHING));
    program
}

/// The longest prefix with which there are few enough networks, and these.
fn networks(addresses: &[Ipv4Addr]) -> (u32, Vec<u32>) {
    let mut mask = u32::MAX;
    loop {
        let mut networks: Vec<u32> = addresses.iter().map(|a| a.to_bits() & mask).collect();
        networks.sort_unstable();
        networks.dedup();
        if networks.len() <= MOST_ADDRESSES {
            return (mask, networks);
        }
        mask <<= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the kernel keeps of a packet, by the meaning of the instructions in `linux/filter.h`.
    fn kept(filter: &PacketFilter, ethertype: u32, packet: &[u8]) -> u32 {
        let (mut at, mut value) = (0, 0_u32);
        loop {
            let instruction = filter.0[at];
            let operand = instruction.operand as usize;
            at += 1;
            match instruction.code {
                LOAD_WORD if instruction.operand == PROTOCOL => value = ethertype,
                LOAD_WORD => {
                    let Some(word) = packet.get(operand..operand + 4) else {
                        return NOTHING;
                    };
                    value = u32::from_be_bytes(word.try_into().unwrap());
                }
                LOAD_BYTE => match packet.get(operand) {
                    Some(byte) => value = u32::from(*byte),
                    None => return NOTHING,
                },
                AND => value &= instruction.operand,
                JUMP => at += operand,
                JUMP_IF_EQUAL => {
                    at += usize::from(match value == instruction.operand {
                        true => instruction.jump_if_true,
                        false => instruction.jump_if_false,
                    });
                }
                RETURN => return instruction.operand,
                other => panic!("no instruction: {other:#x}"),
            }
        }
    }

    const UDP: u8 = 17;
    const TCP: u8 = 6;

    fn packet(protocol: u8, from: Ipv4Addr, to: Ipv4Addr) -> Vec<u8> {
        let mut packet = vec![0_u8; 40];
        packet[0] = 0x45;
        packet[9] = protocol;
        packet[12..16].copy_from_slice(&from.octets());
        packet[16..20].copy_from_slice(&to.octets());
        packet
    }

    fn pods(count: u32) -> Vec<Ipv4Addr> {
        let first = Ipv4Addr::new(10, 244, 0, 0).to_bits();
        // Apart from each other, so that no two are in a common small network.
        (0..count)
            .map(|n| Ipv4Addr::from_bits(first + n * 3))
            .collect()
    }

    #[test]
    fn packet_passes_only_if_both_ends_are_pods_of_the_run() {
        for count in [1, 2, 3, 255, 256] {
            let pods = pods(count);
            let filter = PacketFilter::between(&pods);
            let (first, last) = (pods[0], pods[pods.len() - 1]);
            let stranger = Ipv4Addr::new(10, 250, 0, 1);
            let kept = |from, to| kept(&filter, ETHERTYPE_IPV4, &packet(TCP, from, to));
            assert_eq!(kept(first, last), WHOLE, "{count}");
            assert_eq!(kept(last, first), WHOLE, "{count}");
            for (from, to) in [(stranger, first), (last, stranger), (stranger, stranger)] {
                assert_eq!(kept(from, to), NOTHING, "{count}: {from} to {to}");
            }
        }
    }

    #[test]
    fn other_protocols_and_short_packets_do_not_pass() {
        let pods = pods(2);
        let filter = PacketFilter::between(&pods);
        let tcp = packet(TCP, pods[0], pods[1]);
        assert_eq!(kept(&filter, ETHERTYPE_IPV4, &tcp), WHOLE);
        assert_eq!(kept(&filter, 0x86dd, &tcp), NOTHING, "IPv6");
        assert_eq!(kept(&filter, ETHERTYPE_IPV4, &tcp[..18]), NOTHING);
        // What an overlay's packet is on the physical link: its content is seen on the link of the overlay.
        let udp = packet(UDP, pods[0], pods[1]);
        for filter in [&filter, &PacketFilter::tcp()] {
            assert_eq!(kept(filter, ETHERTYPE_IPV4, &udp), NOTHING);
        }
        assert_eq!(kept(&PacketFilter::tcp(), ETHERTYPE_IPV4, &tcp), WHOLE);
    }

    #[test]
    fn nothing_passes_between_no_addresses() {
        let filter = PacketFilter::between(&[]);
        let pods = pods(2);
        let tcp = packet(TCP, pods[0], pods[1]);
        assert_eq!(kept(&filter, ETHERTYPE_IPV4, &tcp), NOTHING);
    }

    #[test]
    fn more_addresses_than_a_program_can_compare_are_merged_and_still_pass() {
        let pods = pods(5000);
        let filter = PacketFilter::between(&pods);
        assert!(filter.0.len() <= 4096, "{}", filter.0.len());
        for pod in [pods[0], pods[777], pods[4999]] {
            let tcp = packet(TCP, pod, pods[1]);
            assert_eq!(kept(&filter, ETHERTYPE_IPV4, &tcp), WHOLE);
        }
        let stranger = packet(TCP, Ipv4Addr::new(192, 0, 2, 1), pods[1]);
        assert_eq!(kept(&filter, ETHERTYPE_IPV4, &stranger), NOTHING);
    }
}
