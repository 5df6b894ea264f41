package network

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"
)

// listed are the kinds of sockets that may have to be reset: TCP sockets that do not listen and do not only wait for
// late packets, and all UDP sockets.
var listed = []struct {
	family, protocol uint8
	states           uint32
}{
	{unix.AF_INET, unix.IPPROTO_TCP, tcpStates},
	{unix.AF_INET6, unix.IPPROTO_TCP, tcpStates},
	{unix.AF_INET, unix.IPPROTO_UDP, udpStates},
	{unix.AF_INET6, unix.IPPROTO_UDP, udpStates},
}

const (
	tcpStates = 1<<(stateNewSynRecv+1) - 1 - 1 - 1<<stateListen - 1<<stateTimeWait - 1<<stateClose
	udpStates = 1<<stateEstablished | 1<<stateClose
)

// ResetConnections ends the connections that lead out of a machine that was saved and restored: TCP connections, and
// UDP sockets that are connected or bound to an address that the guest no longer has. Their programs get an error at
// once. Otherwise they would wait for answers that go to another machine or are lost. Loopback connections, listeners,
// and UDP sockets that receive on any address survive.
//
// Call it after the new address is set. Then the kernel has no route from the old address, so the resets that it would
// send cannot end the same connections of the machine of which this one is a copy.
func ResetConnections() error {
	own, err := ownAddresses()
	if err != nil {
		return err
	}
	kernel, err := openDiag()
	if err != nil {
		return err
	}
	var failures []error
	for _, kind := range listed {
		sockets, err := kernel.list(kind.family, kind.protocol, kind.states)
		if err != nil {
			failures = append(failures, fmt.Errorf("list of sockets: %w", err))
		}
		failures = append(failures, destroyAll(kernel, sockets, own))
	}
	return errors.Join(append(failures, kernel.close())...)
}

func ownAddresses() (map[netip.Addr]bool, error) {
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("addresses: %w", err)
	}
	own := map[netip.Addr]bool{}
	for _, address := range addresses {
		if prefix, err := netip.ParsePrefix(address.String()); err == nil {
			own[prefix.Addr().Unmap()] = true
		}
	}
	return own, nil
}

// destroyAll returns how many sockets could not be reset, and the first error.
func destroyAll(kernel diag, sockets []diagSocket, own map[netip.Addr]bool) error {
	var first error
	failed := 0
	for _, socket := range sockets {
		if !leadsOut(socket, own) {
			continue
		}
		err := kernel.destroy(socket)
		if err == nil || isGone(socket, err) {
			continue
		}
		failed++
		if first == nil {
			first = err
		}
	}
	if failed == 0 {
		return nil
	}
	return fmt.Errorf("%d of %d sockets could not be reset: %w", failed, len(sockets), first)
}

// isGone reports whether err means that no process has the socket any more: the socket is unknown, another has its
// place, or its program has closed it and it only waits for the other side's end, which the kernel lists as FIN_WAIT2.
func isGone(socket diagSocket, err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ESTALE) ||
		errors.Is(err, unix.EOPNOTSUPP) && socket.state == stateFinWait2
}

// leadsOut reports whether the machine's move ends the socket's connection.
func leadsOut(socket diagSocket, own map[netip.Addr]bool) bool {
	local := socket.local()
	if local.IsLoopback() || local.IsUnspecified() {
		return false
	}
	if socket.state != stateClose {
		return true
	}
	return local.IsGlobalUnicast() && !own[local]
}
