package network

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"
)

// listed says which sockets can be of interest: those of TCP but listeners and what only waits for late packets, and all
// of UDP.
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

// ResetConnections ends what leads out of a machine that has been saved and brought back: TCP connections, and UDP
// sockets that are connected or bound to an address that the guest has no more. Their programs hear of it at once;
// otherwise they would wait for answers that go to another machine or to nobody. Loopback, listeners, and UDP sockets
// that take packets for any address live on.
//
// It comes after the new address is in place: then the kernel has no route from the old one, and the resets that it would
// send cannot end the same connections of the machine that this one is a copy of.
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

// destroyAll reports how many sockets could not be ended, and why the first could not.
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
	return fmt.Errorf("%d of %d sockets live on: %w", failed, len(sockets), first)
}

// isGone tells that nobody has the socket any more: it is unknown, or its place is another's, or it is one that its program
// has closed and that only waits for the other side's end, which the kernel lists as FIN_WAIT2.
func isGone(socket diagSocket, err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ESTALE) ||
		errors.Is(err, unix.EOPNOTSUPP) && socket.state == stateFinWait2
}

// leadsOut tells what the machine's move ends.
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
