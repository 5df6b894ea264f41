package tunnel

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"coppice/agent/internal/agenttest"
	"coppice/agent/internal/api"
	"coppice/agent/internal/guest"
)

// serve listens on one address and passes each connection to handle. The listener is closed at the end of the test.
func serve(t *testing.T, address string, handle func(*net.TCPConn)) (port int) {
	t.Helper()
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go handle(conn.(*net.TCPConn))
		}
	}()
	return listener.Addr().(*net.TCPAddr).Port
}

func echo(conn *net.TCPConn) {
	_, _ = io.Copy(conn, conn)
	_ = conn.Close()
}

func newMachine(t *testing.T) *agenttest.Machine {
	t.Helper()
	state := &guest.State{}
	state.Set(guest.Settings{})
	return agenttest.NewMachine(t, func(func(context.Context) bool) api.Router {
		return api.Router{"POST /tunnel": New(state).Open}
	})
}

func open(t *testing.T, m *agenttest.Machine, port int) *agenttest.Call {
	t.Helper()
	c := m.Post(fmt.Sprintf("/tunnel?port=%d", port), nil)
	if c.Answer.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(c.Answer.Body)
		t.Fatalf("%d %s", c.Answer.StatusCode, body)
	}
	return c
}

func write(t *testing.T, c *agenttest.Call, text string) {
	t.Helper()
	if _, err := io.WriteString(c.Input, text); err != nil {
		t.Fatal(err)
	}
}

func expectBytes(t *testing.T, source io.Reader, want string) {
	t.Helper()
	got := make([]byte, len(want))
	if _, err := io.ReadFull(source, got); err != nil || string(got) != want {
		t.Fatalf("%q %v, want %q", got, err, want)
	}
}

// expectReset checks that a connection was reset and did not end normally.
func expectReset(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Fatalf("%v, want a reset", err)
	}
}

func TestBytesPassBothWaysAsTheyCome(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
		c := open(t, newMachine(t), serve(t, address, echo))
		for _, word := range []string{"one", "two", "\x00\xff"} {
			write(t, c, word)
			expectBytes(t, c.Answer.Body, word)
		}
	}
}

func TestAServiceOnANetworkAddressOnlyIsReached(t *testing.T) {
	addresses := otherAddresses()
	if len(addresses) == 0 {
		t.Log("this machine has only loopback, so this tests only that nothing answers")
		newMachine(t).Post("/tunnel?port=1", nil).ExpectError(http.StatusBadGateway, "port_unreachable", "nothing listens")
		return
	}
	port := serve(t, net.JoinHostPort(addresses[0].String(), "0"), echo)
	c := open(t, newMachine(t), port)
	write(t, c, "hello")
	expectBytes(t, c.Answer.Body, "hello")
}

func TestTheEndOfTheBodyIsTheEndOfTheServicesInputAndItsAnswerStillComes(t *testing.T) {
	port := serve(t, "127.0.0.1:0", func(conn *net.TCPConn) {
		all, _ := io.ReadAll(conn)
		_, _ = fmt.Fprintf(conn, "had %d bytes", len(all))
		_ = conn.Close()
	})
	c := open(t, newMachine(t), port)
	write(t, c, "12345")
	if err := c.Input.Close(); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(c.Answer.Body)
	if err != nil || string(got) != "had 5 bytes" {
		t.Fatalf("%q %v", got, err)
	}
}

func TestTheEndOfTheServicesStreamEndsTheAnswerThoughTheBodyIsOpen(t *testing.T) {
	seen := make(chan error, 1)
	port := serve(t, "127.0.0.1:0", func(conn *net.TCPConn) {
		_, _ = io.WriteString(conn, "last words")
		_ = conn.CloseWrite()
		_, err := io.Copy(io.Discard, conn)
		seen <- err
	})
	c := open(t, newMachine(t), port)
	got, err := io.ReadAll(c.Answer.Body)
	if err != nil || string(got) != "last words" {
		t.Fatalf("%q %v", got, err)
	}
	expectReset(t, receive(t, seen))
}

func receive(t *testing.T, from <-chan error) error {
	t.Helper()
	select {
	case err := <-from:
		return err
	case <-time.After(agenttest.Limit):
		t.Fatal("nothing was received")
		return nil
	}
}

func TestAClientThatLeavesResetsTheServicesConnection(t *testing.T) {
	for name, leave := range map[string]func(*agenttest.Machine, *agenttest.Call){
		"reset of the stream": func(_ *agenttest.Machine, c *agenttest.Call) { c.Leave() },
		"end of the session":  func(m *agenttest.Machine, _ *agenttest.Call) { m.MoveHost() },
	} {
		t.Run(name, func(t *testing.T) {
			seen := make(chan error, 1)
			port := serve(t, "127.0.0.1:0", func(conn *net.TCPConn) {
				_, err := io.Copy(io.Discard, conn)
				seen <- err
			})
			m := newMachine(t)
			c := open(t, m, port)
			write(t, c, "half a request")
			leave(m, c)
			expectReset(t, receive(t, seen))
		})
	}
}

func TestAServiceThatBreaksOffNeverLooksLikeAnEnd(t *testing.T) {
	for name, send := range map[string]string{"while the client listens": "", "while the client sends": strings.Repeat("x", 1<<20)} {
		t.Run(name, func(t *testing.T) {
			port := serve(t, "127.0.0.1:0", func(conn *net.TCPConn) {
				// Without this byte, the reset might come before the agent has its connection.
				_, _ = conn.Read(make([]byte, 1))
				_, _ = io.WriteString(conn, "half an answer")
				_ = conn.SetLinger(0)
				_ = conn.Close()
			})
			c := open(t, newMachine(t), port)
			go func() { _, _ = io.WriteString(c.Input, send+"!") }()
			if got, err := io.ReadAll(c.Answer.Body); err == nil {
				t.Fatalf("the answer ended normally after %q", got)
			}
		})
	}
}

func TestALargeTransferToASlowReaderStaysBounded(t *testing.T) {
	const size = 64 << 20
	written := make(chan int64, 1)
	content := make([]byte, 1<<20)
	_, _ = rand.Read(content)
	port := serve(t, "127.0.0.1:0", func(conn *net.TCPConn) {
		var sent int64
		for sent < size {
			_ = conn.SetWriteDeadline(time.Now().Add(500 * time.Millisecond))
			n, err := conn.Write(content)
			sent += int64(n)
			if err != nil {
				break
			}
		}
		written <- sent
		_ = conn.Close()
	})
	c := open(t, newMachine(t), port)
	// The client does not read the answer. So the service must be stopped by its socket, after what sockets and windows
	// hold. The client's window here is 4 MiB, and the kernel's buffers have up to 10 MiB.
	sent := <-written
	if sent >= size/2 {
		t.Fatalf("%d bytes were accepted although the client did not read", sent)
	}
	got, err := io.ReadAll(c.Answer.Body)
	if err != nil || int64(len(got)) != sent || !bytes.Equal(got[:1<<20], content) {
		t.Fatalf("%d of %d bytes: %v", len(got), sent, err)
	}
}

func TestALargeUploadArrivesWhole(t *testing.T) {
	content := make([]byte, 16<<20)
	_, _ = rand.Read(content)
	c := open(t, newMachine(t), serve(t, "127.0.0.1:0", echo))
	go func() {
		_, _ = c.Input.Write(content)
		_ = c.Input.Close()
	}()
	got, err := io.ReadAll(c.Answer.Body)
	if err != nil || !bytes.Equal(got, content) {
		t.Fatalf("%d of %d bytes: %v", len(got), len(content), err)
	}
}

func TestAPortIsDialledAnewEachTime(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	path := fmt.Sprintf("/tunnel?port=%d", listener.Addr().(*net.TCPAddr).Port)
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	m := newMachine(t)
	m.Post(path, nil).ExpectError(http.StatusBadGateway, "port_unreachable", "nothing listens")
	serve(t, address, echo)
	if c := m.Post(path, nil); c.Answer.StatusCode != http.StatusOK {
		t.Fatal(c.Answer.StatusCode)
	}
}

func TestAPortThatIsNoneIsRefused(t *testing.T) {
	m := newMachine(t)
	for _, query := range []string{"", "?port=", "?port=0", "?port=65536", "?port=-1", "?port=08", "?port=%2B8", "?port=http", "?port=1e3"} {
		m.Post("/tunnel"+query, nil).ExpectError(http.StatusBadRequest, "invalid_request", "port")
	}
}

func TestBeforeTheFirstResumeNothingIsDialled(t *testing.T) {
	m := agenttest.NewMachine(t, func(func(context.Context) bool) api.Router {
		return api.Router{"POST /tunnel": New(&guest.State{}).Open}
	})
	m.Post("/tunnel?port=80", nil).ExpectError(http.StatusConflict, "invalid_state", "resume")
}

func TestTunnelsLeaveNoGoroutines(t *testing.T) {
	port := serve(t, "127.0.0.1:0", echo)
	m := newMachine(t)
	m.Post("/tunnel?port=0", nil).ExpectError(http.StatusBadRequest, "invalid_request", "port")
	before := runtime.NumGoroutine()
	for range 50 {
		c := open(t, m, port)
		write(t, c, "x")
		expectBytes(t, c.Answer.Body, "x")
		c.Leave()
	}
	agenttest.Eventually(t, "no goroutine is left", func() bool { return runtime.NumGoroutine() <= before })
}
