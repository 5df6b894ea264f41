package network

import (
	"errors"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// inOwnNetwork runs test in its own network, on a thread that ends with it. For a user who may not create a network,
// only the tests of what is sent to the kernel remain.
func inOwnNetwork(t *testing.T, test func()) (ran bool) {
	t.Helper()
	done := make(chan bool)
	go func() {
		// The thread is never unlocked, because it must not run other goroutines.
		runtime.LockOSThread()
		defer close(done)
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			t.Log("this user may not create networks: ", err)
			return
		}
		ran = true
		test()
	}()
	<-done
	return ran
}

// give adds an address to loopback's own, on the only interface that every network has. It adds only that address: on
// loopback, all addresses of a subnet would be the machine's own.
func give(t *testing.T, address string) {
	t.Helper()
	ip := netip.MustParseAddr(address).As4()
	err := withSocket(func(socket int) error {
		return errors.Join(
			setUp(socket, "lo", true), setAddress(socket, "lo:1", unix.SIOCSIFADDR, ip[:]),
			setAddress(socket, "lo:1", unix.SIOCSIFNETMASK, []byte{255, 255, 255, 255}),
		)
	})
	if err != nil {
		t.Error(err)
	}
}

func sockaddr(family int, address string, port int) unix.Sockaddr {
	ip := netip.MustParseAddr(address)
	if family == unix.AF_INET {
		return &unix.SockaddrInet4{Addr: ip.As4(), Port: port}
	}
	return &unix.SockaddrInet6{Addr: ip.As16(), Port: port}
}

func portOf(t *testing.T, socket int) int {
	t.Helper()
	name, err := unix.Getsockname(socket)
	if err != nil {
		t.Error(err)
	}
	switch name := name.(type) {
	case *unix.SockaddrInet4:
		return name.Port
	case *unix.SockaddrInet6:
		return name.Port
	}
	return 0
}

func bound(t *testing.T, family, kind int, address string) int {
	t.Helper()
	socket, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		err = unix.Bind(socket, sockaddr(family, address, 0))
	}
	if err != nil {
		t.Error(address, err)
	}
	t.Cleanup(func() { _ = unix.Close(socket) })
	return socket
}

func listening(t *testing.T, address string) int {
	t.Helper()
	listener := bound(t, unix.AF_INET6, unix.SOCK_STREAM, address)
	if err := unix.Listen(listener, 8); err != nil {
		t.Error(err)
	}
	return listener
}

// connect makes a socket of a family and connects it to a port of an address. The address is also the socket's own.
func connect(t *testing.T, family, kind int, address string, port int) int {
	t.Helper()
	socket := bound(t, family, kind, address)
	if err := unix.Connect(socket, sockaddr(family, address, port)); err != nil {
		t.Error(address, err)
	}
	return socket
}

func accept(t *testing.T, listener int) int {
	t.Helper()
	conn, _, err := unix.Accept4(listener, unix.SOCK_CLOEXEC)
	if err != nil {
		t.Error(err)
	}
	t.Cleanup(func() { _ = unix.Close(conn) })
	return conn
}

// receiveError returns the error of a read that must not wait.
func receiveError(t *testing.T, socket int) error {
	t.Helper()
	_, _, err := unix.Recvfrom(socket, make([]byte, 1), unix.MSG_DONTWAIT)
	return err
}

type named struct {
	name   string
	socket int
}

func expectReceive(t *testing.T, want error, sockets []named) {
	t.Helper()
	for _, one := range sockets {
		if err := receiveError(t, one.socket); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", one.name, err, want)
		}
	}
}

func TestConnectionsOfAnOldAddressEndAtOnceAndTheRestLivesOn(t *testing.T) {
	const old, now, loopback = "10.9.9.1", "10.9.9.2", "127.0.0.1"
	const mapped = "::ffff:"
	ran := inOwnNetwork(t, func() {
		give(t, old)
		anywhere := listening(t, "::")
		port := portOf(t, anywhere)
		ended := []named{
			{"TCP", connect(t, unix.AF_INET, unix.SOCK_STREAM, old, port)},
			{"its accepted end, mapped", accept(t, anywhere)},
			{"mapped TCP", connect(t, unix.AF_INET6, unix.SOCK_STREAM, mapped+old, port)},
			{"its accepted end", accept(t, anywhere)},
			{"connected UDP", connect(t, unix.AF_INET, unix.SOCK_DGRAM, old, 53)},
			{"connected mapped UDP", connect(t, unix.AF_INET6, unix.SOCK_DGRAM, mapped+old, 53)},
			{"UDP on the old address", bound(t, unix.AF_INET, unix.SOCK_DGRAM, old)},
			{"mapped UDP on the old address", bound(t, unix.AF_INET6, unix.SOCK_DGRAM, mapped+old)},
		}
		queued := connect(t, unix.AF_INET, unix.SOCK_STREAM, old, port)
		fromQueue := accept(t, anywhere)
		alive := []named{
			{"TCP of loopback", connect(t, unix.AF_INET, unix.SOCK_STREAM, loopback, port)},
			{"its accepted end", accept(t, anywhere)},
			{"IPv6 of loopback", connect(t, unix.AF_INET6, unix.SOCK_STREAM, "::1", port)},
			{"its accepted end", accept(t, anywhere)},
			{"connected UDP of loopback", connect(t, unix.AF_INET, unix.SOCK_DGRAM, loopback, port)},
			{"UDP on all addresses", bound(t, unix.AF_INET, unix.SOCK_DGRAM, "0.0.0.0")},
			{"IPv6 UDP on all addresses", bound(t, unix.AF_INET6, unix.SOCK_DGRAM, "::")},
		}
		expectReceive(t, unix.EAGAIN, append(ended, alive...))

		give(t, now)
		began := time.Now()
		if err := ResetConnections(); err != nil {
			t.Error(err)
		}
		t.Log("took ", time.Since(began))
		// No socket reports "reset by peer": no packet with the old address has left its socket.
		expectReceive(t, unix.ECONNABORTED, append(ended, named{"TCP", queued}, named{"its accepted end", fromQueue}))
		expectReceive(t, unix.EAGAIN, alive)

		expectReceive(t, unix.EAGAIN, []named{
			{"a new connection to the listener", connect(t, unix.AF_INET, unix.SOCK_STREAM, now, port)},
			{"its accepted end", accept(t, anywhere)},
		})
	})
	if !ran && unix.Geteuid() == 0 {
		t.Error("root may not create networks here")
	}
}

func TestAnAddressThatStayedKeepsItsDatagramServersOnly(t *testing.T) {
	const address = "10.9.9.1"
	inOwnNetwork(t, func() {
		give(t, address)
		listener := listening(t, "::ffff:"+address)
		connection := connect(t, unix.AF_INET, unix.SOCK_STREAM, address, portOf(t, listener))
		server := bound(t, unix.AF_INET, unix.SOCK_DGRAM, address)
		if err := ResetConnections(); err != nil {
			t.Error(err)
		}
		expectReceive(t, unix.ECONNABORTED, []named{{"TCP", connection}})
		expectReceive(t, unix.EAGAIN, []named{{"UDP server", server}})
		_ = connect(t, unix.AF_INET, unix.SOCK_STREAM, address, portOf(t, listener))
	})
}
