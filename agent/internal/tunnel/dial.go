package tunnel

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"coppice/agent/internal/fault"
)

const (
	// dialLimit bounds the dial of one address. It is reached only if the guest drops packets or a queue is full.
	dialLimit = 5 * time.Second
	// maxOtherAddresses bounds the addresses that a guest may have given itself.
	maxOtherAddresses = 16
)

// dialer sends no keep-alive probes: the kernel reports the death of a peer within the same guest, and each probe would
// wake the guest.
var dialer = net.Dialer{Timeout: dialLimit, KeepAlive: -1}

// dial tries loopback first, where developers' servers listen, and then the other addresses, for a service that listens
// only on its network address. It remembers nothing: a service may have begun to listen a moment ago.
func dial(ctx context.Context, port int) (*net.TCPConn, error) {
	var failures []error
	for _, address := range []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()} {
		conn, err := dialAddress(ctx, address, port)
		if err == nil {
			return conn, nil
		}
		failures = append(failures, err)
	}
	for _, address := range otherAddresses() {
		conn, err := dialAddress(ctx, address, port)
		if err == nil {
			return conn, nil
		}
		failures = append(failures, err)
	}
	return nil, explain(port, failures)
}

func dialAddress(ctx context.Context, address netip.Addr, port int) (*net.TCPConn, error) {
	conn, err := dialer.DialContext(ctx, "tcp", netip.AddrPortFrom(address, uint16(port)).String())
	if err != nil {
		return nil, err
	}
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return nil, errors.Join(fmt.Errorf("%T is not a TCP connection", conn), conn.Close())
	}
	return tcp, nil
}

// explain blames the sandbox's own limits if these failed, and otherwise the service.
func explain(port int, failures []error) error {
	err := errors.Join(failures...)
	for _, limit := range []error{unix.EMFILE, unix.ENFILE, unix.ENOBUFS, unix.ENOMEM} {
		if errors.Is(err, limit) {
			return fault.New(fault.Capacity, "the sandbox has no room for another connection: %v", limit)
		}
	}
	reason := "nothing listens"
	if !errors.Is(failures[0], unix.ECONNREFUSED) {
		reason = failures[0].Error()
	}
	return fault.New(fault.PortUnreachable,
		"port %d of the sandbox does not answer (%s); start the service and wait until it listens", port, reason)
}

// otherAddresses returns the addresses of the guest's interfaces except loopback.
func otherAddresses() []netip.Addr {
	interfaces, err := net.Interfaces()
	if err != nil {
		return nil
	}
	var found []netip.Addr
	for _, one := range interfaces {
		if one.Flags&net.FlagLoopback != 0 || one.Flags&net.FlagUp == 0 {
			continue
		}
		addresses, err := one.Addrs()
		if err != nil {
			continue
		}
		for _, address := range addresses {
			parsed, ok := addressOf(address, one.Name)
			if ok && len(found) < maxOtherAddresses {
				found = append(found, parsed)
			}
		}
	}
	return found
}

func addressOf(address net.Addr, zone string) (netip.Addr, bool) {
	network, ok := address.(*net.IPNet)
	if !ok {
		return netip.Addr{}, false
	}
	parsed, ok := netip.AddrFromSlice(network.IP)
	parsed = parsed.Unmap()
	if parsed.IsLinkLocalUnicast() && parsed.Is6() {
		parsed = parsed.WithZone(zone)
	}
	return parsed, ok
}
