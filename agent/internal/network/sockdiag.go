package network

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"syscall"

	"golang.org/x/sys/unix"
)

// Sizes of <linux/inet_diag.h>. A socket's id holds ports, addresses, interface and cookie. It is copied unchanged from
// an answer into the next request.
const (
	socketIDBytes      = 48 // struct inet_diag_sockid
	diagRequestBytes   = 8 + socketIDBytes
	diagAnswerBytes    = 4 + socketIDBytes + 20 // struct inet_diag_msg
	localAddressOffset = 4
	// receiveBytes is more than the kernel puts into one datagram of a dump.
	receiveBytes = 64 << 10
)

// States of <net/tcp_states.h>. UDP uses two of them as well: connected (established) or not (close).
const (
	stateEstablished = 1
	stateFinWait2    = 5
	stateTimeWait    = 6
	stateClose       = 7
	stateListen      = 10
	stateNewSynRecv  = 12 // the last state of Linux 6.1
)

// diagSocket is a socket that the kernel has listed.
type diagSocket struct {
	family, protocol, state uint8
	id                      [socketIDBytes]byte
}

// local returns the socket's own address. A mapped address is returned as IPv4.
func (s diagSocket) local() netip.Addr {
	address := s.id[localAddressOffset:]
	if s.family == unix.AF_INET {
		return netip.AddrFrom4([4]byte(address))
	}
	return netip.AddrFrom16([16]byte(address)).Unmap()
}

// diag is a connection to the kernel's list of sockets. It sees the sockets of the agent's own network namespace.
type diag struct{ fd int }

func openDiag() (diag, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return diag{}, fmt.Errorf("list of sockets: %w", err)
	}
	return diag{fd}, nil
}

func (d diag) close() error { return unix.Close(d.fd) }

// list returns the sockets of a family and protocol whose state is in states, a set of bits.
func (d diag) list(family, protocol uint8, states uint32) ([]diagSocket, error) {
	request := encodeDiag(unix.SOCK_DIAG_BY_FAMILY, unix.NLM_F_DUMP, diagSocket{family: family, protocol: protocol}, states)
	var found []diagSocket
	err := d.exchange(request, func(data []byte) {
		if socket, ok := parseDiag(data); ok {
			socket.protocol = protocol
			found = append(found, socket)
		}
	})
	return found, err
}

// destroy ends a socket as an error of the network would: its owner's next call fails.
func (d diag) destroy(socket diagSocket) error {
	return d.exchange(encodeDiag(unix.SOCK_DESTROY, unix.NLM_F_ACK, socket, 0), func([]byte) {})
}

func encodeDiag(kind, flags uint16, socket diagSocket, states uint32) []byte {
	message := make([]byte, unix.SizeofNlMsghdr, unix.SizeofNlMsghdr+diagRequestBytes)
	binary.NativeEndian.PutUint32(message[0:], unix.SizeofNlMsghdr+diagRequestBytes)
	binary.NativeEndian.PutUint16(message[4:], kind)
	binary.NativeEndian.PutUint16(message[6:], unix.NLM_F_REQUEST|flags)
	message = append(message, socket.family, socket.protocol, 0, 0)
	message = binary.NativeEndian.AppendUint32(message, states)
	return append(message, socket.id[:]...)
}

// parseDiag reads a struct inet_diag_msg: family, state, timer, retransmissions, id.
func parseDiag(data []byte) (diagSocket, bool) {
	if len(data) < diagAnswerBytes {
		return diagSocket{}, false
	}
	socket := diagSocket{family: data[0], state: data[1]}
	copy(socket.id[:], data[4:])
	return socket, socket.family == unix.AF_INET || socket.family == unix.AF_INET6
}

// exchange sends a request and passes each message to take, until the acknowledgement or the end of a dump.
func (d diag) exchange(request []byte, take func(data []byte)) error {
	if err := unix.Sendto(d.fd, request, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return fmt.Errorf("netlink: %w", err)
	}
	buffer := make([]byte, receiveBytes)
	for {
		n, _, err := unix.Recvfrom(d.fd, buffer, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return fmt.Errorf("netlink: %w", err)
		}
		messages, err := syscall.ParseNetlinkMessage(buffer[:n])
		if err != nil {
			return fmt.Errorf("netlink: %w", err)
		}
		for _, message := range messages {
			switch message.Header.Type {
			case unix.NLMSG_DONE, unix.NLMSG_ERROR:
				return parseStatus(message.Data)
			default:
				take(message.Data)
			}
		}
	}
}

// parseStatus reads the negative errno at the start of an acknowledgement or of the end of a dump.
func parseStatus(data []byte) error {
	if len(data) < 4 {
		return errors.New("netlink: an answer is too short")
	}
	if code := int32(binary.NativeEndian.Uint32(data)); code < 0 {
		return unix.Errno(-code)
	}
	return nil
}
