package network

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

func socketOf(family, state uint8, local string) diagSocket {
	socket := diagSocket{family: family, protocol: unix.IPPROTO_TCP, state: state}
	address := netip.MustParseAddr(local)
	if family == unix.AF_INET {
		copy(socket.id[localAddressOffset:], address.AsSlice())
	} else {
		mapped := address.As16()
		copy(socket.id[localAddressOffset:], mapped[:])
	}
	return socket
}

func TestARequestIsLaidOutAsTheKernelReadsIt(t *testing.T) {
	socket := socketOf(unix.AF_INET, stateEstablished, "10.1.2.3")
	socket.id[0], socket.id[47] = 0xab, 0xcd
	message := encodeDiag(unix.SOCK_DESTROY, unix.NLM_F_ACK, socket, 0x1234)
	if len(message) != 72 || binary.NativeEndian.Uint32(message) != 72 {
		t.Fatal(len(message))
	}
	if binary.NativeEndian.Uint16(message[4:]) != 21 || binary.NativeEndian.Uint16(message[6:]) != 5 {
		t.Errorf("header % x", message[:16])
	}
	if message[16] != 2 || message[17] != 6 || binary.NativeEndian.Uint32(message[20:]) != 0x1234 {
		t.Errorf("request % x", message[16:24])
	}
	if !slices.Equal(message[28:32], []byte{10, 1, 2, 3}) || message[24] != 0xab || message[71] != 0xcd {
		t.Errorf("id % x", message[24:])
	}
}

func TestAnAnswerIsReadAsTheKernelWritesIt(t *testing.T) {
	data := make([]byte, diagAnswerBytes)
	data[0], data[1] = unix.AF_INET6, stateClose
	mapped := netip.MustParseAddr("::ffff:10.0.0.9").As16()
	copy(data[8:], mapped[:])
	data[4+socketIDBytes-1] = 0x7f
	socket, ok := parseDiag(data)
	if !ok || socket.state != stateClose || socket.local().String() != "10.0.0.9" || socket.id[socketIDBytes-1] != 0x7f {
		t.Fatalf("%+v %v", socket, ok)
	}
	if _, ok := parseDiag(data[:diagAnswerBytes-1]); ok {
		t.Error("a part of an answer was accepted")
	}
	data[0] = unix.AF_UNIX
	if _, ok := parseDiag(data); ok {
		t.Error("a socket of another family was accepted")
	}
}

func TestTheStatusOfAnExchangeIsAnErrno(t *testing.T) {
	status := func(code int32) []byte { return binary.NativeEndian.AppendUint32(nil, uint32(code)) }
	if err := parseStatus(status(0)); err != nil {
		t.Error(err)
	}
	if err := parseStatus(status(-2)); !errors.Is(err, unix.ENOENT) {
		t.Error(err)
	}
	if err := parseStatus([]byte{1, 2}); err == nil {
		t.Error("a part of a status was accepted")
	}
}

func TestTheStatesOfTCPAreThoseOfConnections(t *testing.T) {
	for state, want := range map[uint]bool{
		0: false, stateEstablished: true, 2: true, 3: true, 4: true, stateFinWait2: true, stateTimeWait: false, stateClose: false,
		8: true, 9: true, stateListen: false, 11: true, stateNewSynRecv: true, 13: false,
	} {
		if (tcpStates>>state&1 == 1) != want {
			t.Errorf("state %d", state)
		}
	}
}

func TestWhatLeadsOutIsEndedAndTheRestLeftAlone(t *testing.T) {
	own := map[netip.Addr]bool{netip.MustParseAddr("10.0.0.2"): true}
	for _, one := range []struct {
		family, state uint8
		local         string
		want          bool
	}{
		{unix.AF_INET, stateEstablished, "10.0.0.1", true},
		{unix.AF_INET, stateEstablished, "10.0.0.2", true},
		{unix.AF_INET, stateEstablished, "127.0.0.1", false},
		{unix.AF_INET, stateEstablished, "127.8.8.8", false},
		{unix.AF_INET6, stateEstablished, "::1", false},
		{unix.AF_INET6, stateEstablished, "::ffff:127.0.0.1", false},
		{unix.AF_INET6, stateEstablished, "::ffff:10.0.0.1", true},
		{unix.AF_INET6, stateEstablished, "fd00::1", true},
		{unix.AF_INET, stateClose, "10.0.0.1", true},
		{unix.AF_INET6, stateClose, "::ffff:10.0.0.1", true},
		{unix.AF_INET, stateClose, "10.0.0.2", false},
		{unix.AF_INET6, stateClose, "::ffff:10.0.0.2", false},
		{unix.AF_INET, stateClose, "0.0.0.0", false},
		{unix.AF_INET6, stateClose, "::", false},
		{unix.AF_INET, stateClose, "224.0.0.251", false},
		{unix.AF_INET, stateClose, "255.255.255.255", false},
	} {
		if got := leadsOut(socketOf(one.family, one.state, one.local), own); got != one.want {
			t.Errorf("%+v: %v", one, got)
		}
	}
}
