package conntrack

import (
	"encoding/binary"
	"net"
	"net/netip"
	"testing"

	"github.com/mdlayher/netlink"

	"coppice/hostctl/internal/netnstest"
)

func open(t *testing.T) *Table {
	t.Helper()
	netnstest.Enter(t)
	table, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = table.Close() })
	return table
}

// accept makes a redirected connection and returns its ends as the accepting side sees them.
func accept(t *testing.T) (local, remote netip.AddrPort) {
	t.Helper()
	listener, err := net.Listen("tcp4", "127.0.0.1:8000")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	netnstest.Run(t, "nft", `table inet t { chain out { type nat hook output priority -100;
		ip daddr 198.51.100.9 tcp dport 443 ct mark set 7 redirect to :8000; }; }`, "-f", "-")
	netnstest.Run(t, "ip", "", "route", "add", "198.51.100.0/24", "dev", "lo")
	client, err := net.Dial("tcp4", "198.51.100.9:443")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	server, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	return netip.MustParseAddrPort(server.LocalAddr().String()), netip.MustParseAddrPort(server.RemoteAddr().String())
}

func TestFindsTheDestinationBeforeTheRedirect(t *testing.T) {
	table := open(t)
	local, remote := accept(t)
	for range 2 {
		original, ok, err := table.FindOriginal(local, remote)
		if err != nil || !ok || original != netip.MustParseAddrPort("198.51.100.9:443") {
			t.Fatalf("%v %v %v", original, ok, err)
		}
	}
}

func TestAnUnknownConnectionIsNoError(t *testing.T) {
	table := open(t)
	local := netip.MustParseAddrPort("127.0.0.1:8000")
	if _, ok, err := table.FindOriginal(local, netip.MustParseAddrPort("127.0.0.1:9")); ok || err != nil {
		t.Errorf("%v %v", ok, err)
	}
	if _, _, err := table.FindOriginal(local, netip.MustParseAddrPort("[::1]:9")); err == nil {
		t.Error("an IPv6 connection was looked for")
	}
}

func TestFlushForgetsExactlyTheConnectionsWithTheMark(t *testing.T) {
	table := open(t)
	local, remote := accept(t)
	if err := table.Flush(8); err != nil {
		t.Fatal(err)
	}
	if _, ok, _ := table.FindOriginal(local, remote); !ok {
		t.Error("a connection with another mark is gone")
	}
	if err := table.Flush(7); err != nil {
		t.Fatal(err)
	}
	if _, ok, _ := table.FindOriginal(local, remote); ok {
		t.Error("the connection is still tracked")
	}
	if err := table.Flush(7); err != nil {
		t.Error("a flush without connections:", err)
	}
}

func FuzzParseDestination(f *testing.F) {
	f.Add([]byte{8, 0, 1, 0, 1, 0, 0, 0})
	f.Fuzz(func(_ *testing.T, attributes []byte) {
		_, _ = parseDestination(attributes)
	})
}

func TestADestinationMayHavePortZero(t *testing.T) {
	encoder := netlink.NewAttributeEncoder()
	encoder.ByteOrder = binary.BigEndian
	source := netip.MustParseAddrPort("10.0.0.2:5000")
	encoder.Nested(tupleOriginal, func(tuple *netlink.AttributeEncoder) error {
		encodeTuple(tuple, source, netip.MustParseAddrPort("198.51.100.9:0"))
		return nil
	})
	attributes, err := encoder.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if found, err := parseDestination(attributes); err != nil || found.String() != "198.51.100.9:0" {
		t.Errorf("%v %v", found, err)
	}
}
