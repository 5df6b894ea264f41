// Package conntrack forgets tracked connections and finds where redirected ones were meant to go:
// linux/netfilter/nfnetlink_conntrack.h.
package conntrack

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"coppice/hostctl/internal/netfilter"
)

// Messages of the subsystem.
const (
	get    = 1
	remove = 2
)

// Attributes: CTA_*, CTA_TUPLE_*, CTA_IP_*, CTA_PROTO_*.
const (
	tupleOriginal  = 1
	tupleReply     = 2
	mark           = 8
	markMask       = 21
	tupleAddresses = 1
	tupleProtocol  = 2
	v4Source       = 1
	v4Destination  = 2
	protocolNumber = 1
	sourcePort     = 2
	destination    = 3
)

// Table is a connection to the kernel's table of connections. It is not safe for concurrent use.
type Table struct {
	connection *netlink.Conn
}

// Open opens the table of this network namespace.
func Open() (*Table, error) {
	connection, err := netfilter.Dial(0)
	if err != nil {
		return nil, err
	}
	return &Table{connection}, nil
}

// Close releases the connection.
func (t *Table) Close() error {
	return t.connection.Close()
}

// Flush forgets all IPv4 connections with exactly this mark, so that the next guest with the same address inherits none.
func (t *Table) Flush(connectionMark uint32) error {
	_, _, err := netfilter.Execute(t.connection, netfilter.Request{
		Subsystem: unix.NFNL_SUBSYS_CTNETLINK,
		Message:   remove,
		Flags:     netlink.Acknowledge,
		Family:    unix.AF_INET,
		Encode: func(encoder *netlink.AttributeEncoder) error {
			encoder.Uint32(mark, connectionMark)
			encoder.Uint32(markMask, 0xff_ff_ff_ff)
			return nil
		},
	})
	if err != nil {
		return fmt.Errorf("flushing connections: %w", err)
	}
	return nil
}

// FindOriginal returns the destination that a TCP connection had before it was redirected: local and remote are its two
// ends as the accepting process sees them. It returns ok=false when the kernel does not track the connection.
func (t *Table) FindOriginal(local, remote netip.AddrPort) (original netip.AddrPort, ok bool, err error) {
	if !local.Addr().Is4() || !remote.Addr().Is4() {
		return netip.AddrPort{}, false, errors.New("only IPv4 connections are redirected")
	}
	answers, ok, err := netfilter.Execute(t.connection, netfilter.Request{
		Subsystem: unix.NFNL_SUBSYS_CTNETLINK,
		Message:   get,
		// The kernel marks its answer as one of several; the acknowledgement ends it.
		Flags:  netlink.Acknowledge,
		Family: unix.AF_INET,
		Encode: func(encoder *netlink.AttributeEncoder) error {
			encoder.Nested(tupleReply, func(tuple *netlink.AttributeEncoder) error {
				encodeTuple(tuple, local, remote)
				return nil
			})
			return nil
		},
	})
	if err != nil || !ok || len(answers) == 0 {
		return netip.AddrPort{}, false, wrap(err)
	}
	original, err = parseDestination(answers[0])
	return original, err == nil, err
}

func wrap(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("finding a connection: %w", err)
}

func encodeTuple(tuple *netlink.AttributeEncoder, source, target netip.AddrPort) {
	tuple.Nested(tupleAddresses, func(addresses *netlink.AttributeEncoder) error {
		addresses.Bytes(v4Source, source.Addr().AsSlice())
		addresses.Bytes(v4Destination, target.Addr().AsSlice())
		return nil
	})
	tuple.Nested(tupleProtocol, func(protocol *netlink.AttributeEncoder) error {
		protocol.Uint8(protocolNumber, unix.IPPROTO_TCP)
		protocol.Uint16(sourcePort, source.Port())
		protocol.Uint16(destination, target.Port())
		return nil
	})
}

// parseDestination reads the destination of the original tuple.
func parseDestination(attributes []byte) (netip.AddrPort, error) {
	var address netip.Addr
	var port uint16
	hasPort := false
	decoder, err := netfilter.Decode(attributes)
	if err != nil {
		return netip.AddrPort{}, err
	}
	for decoder.Next() {
		if decoder.Type() != tupleOriginal {
			continue
		}
		decoder.Nested(func(tuple *netlink.AttributeDecoder) error {
			for tuple.Next() {
				switch tuple.Type() {
				case tupleAddresses:
					tuple.Nested(func(addresses *netlink.AttributeDecoder) error {
						for addresses.Next() {
							if addresses.Type() == v4Destination {
								address, _ = netip.AddrFromSlice(addresses.Bytes())
							}
						}
						return nil
					})
				case tupleProtocol:
					tuple.Nested(func(protocol *netlink.AttributeDecoder) error {
						for protocol.Next() {
							if protocol.Type() == destination {
								port, hasPort = protocol.Uint16(), true
							}
						}
						return nil
					})
				}
			}
			return nil
		})
	}
	if err := decoder.Err(); err != nil {
		return netip.AddrPort{}, fmt.Errorf("decoding a connection: %w", err)
	}
	// A guest may connect to port 0.
	if !address.Is4() || !hasPort {
		return netip.AddrPort{}, errors.New("the kernel's answer names no destination")
	}
	return netip.AddrPortFrom(address, port), nil
}
