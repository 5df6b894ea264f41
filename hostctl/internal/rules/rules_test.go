package rules

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/mdlayher/netlink"

	"coppice/hostctl/internal/netnstest"
)

const table = `table inet t {
	counter refused { packets 7 bytes 9 }
	set plain { type ifname; elements = { "tap1", "tap2" }; }
	set many { type ipv4_addr; }
	set refused_ports { type ifname . ipv4_addr . inet_proto . inet_service; flags dynamic,timeout; timeout 1m; }
}
add element inet t refused_ports { "tap7" . 203.0.113.1 . udp . 5000 counter packets 3 bytes 90 }
add element inet t many { %s }
`

func open(t *testing.T) *Reader {
	t.Helper()
	netnstest.Enter(t)
	addresses := []string{}
	for at := range 4000 {
		addresses = append(addresses, fmt.Sprintf("10.0.%d.%d", at>>8, at&255))
	}
	netnstest.Run(t, "nft", fmt.Sprintf(table, strings.Join(addresses, ", ")), "-f", "-")
	reader, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = reader.Close() })
	return reader
}

func TestReadsElementsWithKeysCountsAndTimeouts(t *testing.T) {
	reader := open(t)
	plain, ok, err := reader.ReadSet("t", "plain")
	if err != nil || !ok || len(plain) != 2 {
		t.Fatalf("%v %v %v", plain, ok, err)
	}
	for _, element := range plain {
		name := string(bytes.TrimRight(element.Key, "\x00"))
		if !strings.HasPrefix(name, "tap") || element.Packets != 0 || element.Remaining != math.MaxInt64 {
			t.Errorf("%+v", element)
		}
	}
	ports, _, err := reader.ReadSet("t", "refused_ports")
	if err != nil || len(ports) != 1 || ports[0].Packets != 3 {
		t.Fatalf("%+v %v", ports, err)
	}
	if left := ports[0].Remaining; left < 50*time.Second || left > time.Minute {
		t.Errorf("remaining %v", left)
	}
	if key := ports[0].Key; !bytes.Contains(key, []byte{203, 0, 113, 1}) || len(key) != 28 {
		t.Errorf("key %x", key)
	}
	many, _, err := reader.ReadSet("t", "many")
	if err != nil || len(many) != 4000 {
		t.Errorf("%d elements of several datagrams: %v", len(many), err)
	}
}

func TestReadsCounters(t *testing.T) {
	reader := open(t)
	for range 2 {
		if packets, ok, err := reader.ReadCounter("t", "refused"); packets != 7 || !ok || err != nil {
			t.Errorf("%d %v %v", packets, ok, err)
		}
	}
}

func TestAbsentObjectsAreNoErrors(t *testing.T) {
	reader := open(t)
	for _, name := range []struct{ table, object string }{{"t", "absent"}, {"absent", "plain"}} {
		if _, ok, err := reader.ReadSet(name.table, name.object); ok || err != nil {
			t.Errorf("set %v: %v %v", name, ok, err)
		}
		if _, ok, err := reader.ReadCounter(name.table, name.object); ok || err != nil {
			t.Errorf("counter %v: %v %v", name, ok, err)
		}
	}
}

func TestAnnouncesTheRemovalOfTheTableOnly(t *testing.T) {
	open(t)
	connection, err := OpenWatch()
	if err != nil {
		t.Fatal(err)
	}
	removed := make(chan struct{}, 10)
	ended := make(chan error, 1)
	go func() { ended <- Watch(connection, "t", func() { removed <- struct{}{} }) }()
	netnstest.Run(t, "nft", "add table inet other\ndelete table inet other\n", "-f", "-")
	select {
	case <-removed:
		t.Fatal("another table was taken for this one")
	case <-time.After(200 * time.Millisecond):
	}
	netnstest.Run(t, "nft", "", "flush", "ruleset")
	select {
	case <-removed:
	case <-time.After(10 * time.Second):
		t.Fatal("the removal was not announced")
	}
	_ = connection.Close()
	if err := <-ended; err == nil {
		t.Error("a watch that ended says why")
	}
}

func FuzzParseElements(f *testing.F) {
	f.Add([]byte{8, 0, 3, 0, 1, 0, 0, 0})
	f.Fuzz(func(_ *testing.T, attributes []byte) {
		_, _ = parseElements(attributes)
		_ = deletes(netlink.Message{Data: attributes}, "t")
	})
}
