// Package netfilter sends requests to the kernel's netfilter family of netlink: linux/netlink.h,
// linux/netfilter/nfnetlink.h. A connection belongs to the network namespace of the thread that opened it.
package netfilter

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Timeout bounds one exchange. The kernel answers within the system call; a flush may walk a large table.
const Timeout = 10 * time.Second

// headerBytes is the length of struct nfgenmsg: family, version and resource id.
const headerBytes = 4

// Dial opens a connection that also receives the messages of the given multicast groups.
func Dial(groups uint32) (*netlink.Conn, error) {
	connection, err := netlink.Dial(unix.NETLINK_NETFILTER, &netlink.Config{Groups: groups})
	if err != nil {
		return nil, fmt.Errorf("opening a netlink socket: %w", err)
	}
	return connection, nil
}

// Request is one request. Encode adds its attributes.
type Request struct {
	// Subsystem and Message form the type of the message.
	Subsystem, Message uint16
	// Flags hold Acknowledge only if the answer would have no end without it.
	Flags netlink.HeaderFlags
	// Family is an address family, such as AF_INET, or a family of nftables.
	Family uint8
	Encode func(*netlink.AttributeEncoder) error
}

// Execute sends a request and returns the attributes of every message of the answer. It returns ok=false when the kernel
// has no such object.
func Execute(connection *netlink.Conn, request Request) (attributes [][]byte, ok bool, err error) {
	encoder := netlink.NewAttributeEncoder()
	encoder.ByteOrder = binary.BigEndian
	if err := request.Encode(encoder); err != nil {
		return nil, false, err
	}
	body, err := encoder.Encode()
	if err != nil {
		return nil, false, fmt.Errorf("encoding a netlink request: %w", err)
	}
	if err := connection.SetDeadline(time.Now().Add(Timeout)); err != nil {
		return nil, false, fmt.Errorf("setting a deadline: %w", err)
	}
	message := netlink.Message{
		Header: netlink.Header{
			Type:  netlink.HeaderType(request.Subsystem<<8 | request.Message),
			Flags: netlink.Request | request.Flags,
		},
		Data: append([]byte{request.Family, unix.NFNETLINK_V0, 0, 0}, body...),
	}
	answers, err := connection.Execute(message)
	if errors.Is(err, unix.ENOENT) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("the kernel refused: %w", err)
	}
	for _, answer := range answers {
		if found, ok := Attributes(answer); ok {
			attributes = append(attributes, found)
		}
	}
	return attributes, true, nil
}

// Attributes returns the attributes of a message; ok=false for one that has none, such as an acknowledgement.
func Attributes(message netlink.Message) (attributes []byte, ok bool) {
	if message.Header.Type == netlink.Error || message.Header.Type == netlink.Done || len(message.Data) < headerBytes {
		return nil, false
	}
	return message.Data[headerBytes:], true
}

// Decode returns a decoder of big-endian attributes.
func Decode(attributes []byte) (*netlink.AttributeDecoder, error) {
	decoder, err := netlink.NewAttributeDecoder(attributes)
	if err != nil {
		return nil, fmt.Errorf("decoding netlink attributes: %w", err)
	}
	decoder.ByteOrder = binary.BigEndian
	return decoder, nil
}
