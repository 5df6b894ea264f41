// Package sshserver is the SSH server of one connection. It is a program of its own: the agent starts itself a second time
// for each connection, as the user and in the place of the sandbox's commands, in their control group.
//
//	POST /ssh ──▶ standard input ──▶ SSH ──▶ sessions (shell, exec, sftp), connections to loopback
//	answer    ◀── standard output ◀─┘
//
// So the kernel decides what a client may do, as with any command, and a fault in this code ends one connection and not
// PID 1. There is no authentication in here: control has authenticated the caller, and gave this connection to it.
package sshserver

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/sys/unix"
)

// Argument makes the agent's program this server.
const Argument = "ssh-server"

const (
	// handshakeLimit bounds the time until a client has agreed on keys.
	handshakeLimit = time.Minute
	// memoryLimitBytes makes the garbage collector work harder before a connection uses much of a small guest's memory.
	memoryLimitBytes = 48 << 20
	// maxChannels bounds sessions and forwarded connections of one client. A channel buffers at most 2 MiB of input (twice
	// that for a client that misuses the second stream), if its program does not read.
	maxChannels = 128
	// maxRefusals bounds channels that were not opened: the library keeps about 1 KiB for each until the connection ends.
	maxRefusals = 10_000
	// leaveLimit bounds the end of the sessions of a client that has left. The agent kills this process later.
	leaveLimit = time.Second
)

// Main serves the connection on standard input and output. The seed of the host key comes first.
func Main() error {
	debug.SetMemoryLimit(memoryLimitBytes)
	// With the poller, a read can be ended by Close.
	if err := errors.Join(unix.SetNonblock(0, true), unix.SetNonblock(1, true)); err != nil {
		return err
	}
	input, output := os.NewFile(0, "standard input"), os.NewFile(1, "standard output")
	seed := make([]byte, ed25519.SeedSize)
	if _, err := io.ReadFull(input, seed); err != nil {
		return fmt.Errorf("host key: %w", err)
	}
	return Serve(&pipes{input, output}, ed25519.NewKeyFromSeed(seed))
}

// server has the channels of one client.
type server struct {
	client   ssh.Conn
	places   chan struct{}
	sessions sync.WaitGroup
	refusals atomic.Int32
}

// Serve serves one client until it has left.
func Serve(line net.Conn, key ed25519.PrivateKey) error {
	signer, err := ssh.NewSignerFromKey(key)
	if err != nil {
		return err
	}
	config := &ssh.ServerConfig{NoClientAuth: true, ServerVersion: "SSH-2.0-Coppice"}
	config.AddHostKey(signer)
	late := time.AfterFunc(handshakeLimit, func() { _ = line.Close() })
	client, channels, requests, err := ssh.NewServerConn(line, config)
	late.Stop()
	if err != nil {
		return fmt.Errorf("handshake: %w", err)
	}
	// Forwarding from the guest to the client is refused; questions whether this side is alive need any answer.
	go ssh.DiscardRequests(requests)
	s := &server{client: client, places: make(chan struct{}, maxChannels)}
	for offer := range channels {
		s.admit(offer)
	}
	if err := client.Wait(); err != nil && !errors.Is(err, io.EOF) {
		slog.Debug("connection ended", "error", err)
	}
	s.awaitSessions()
	return nil
}

func (s *server) admit(offer ssh.NewChannel) {
	select {
	case s.places <- struct{}{}:
	default:
		s.refuse(offer, ssh.ResourceShortage, fmt.Sprintf("more than %d channels are open; close some", maxChannels))
		return
	}
	s.sessions.Add(1)
	go func() {
		defer func() { <-s.places }()
		s.open(offer)
	}()
}

func (s *server) open(offer ssh.NewChannel) {
	kind := offer.ChannelType()
	if kind == "session" {
		defer s.sessions.Done()
		openSession(offer)
		return
	}
	// Forwarded connections end with this process.
	s.sessions.Done()
	if kind == "direct-tcpip" {
		s.openForward(offer)
		return
	}
	s.refuse(offer, ssh.UnknownChannelType, "sandboxes do not support "+kind)
}

func (s *server) refuse(offer ssh.NewChannel, reason ssh.RejectionReason, message string) {
	// Counted before the client can know of it and offer the next one.
	if s.refusals.Add(1) == maxRefusals {
		slog.Warn("connection ended: too many channels were refused", "limit", maxRefusals)
		_ = s.client.Close()
	}
	if err := offer.Reject(reason, message); err != nil {
		slog.Debug("client left before a refusal", "error", err)
	}
}

// awaitSessions lets sessions hang up their programs.
func (s *server) awaitSessions() {
	ended := make(chan struct{})
	go func() {
		s.sessions.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(leaveLimit):
	}
}

// pipes are both directions of the line as a connection.
type pipes struct{ input, output *os.File }

func (p *pipes) Read(b []byte) (int, error)  { return p.input.Read(b) }
func (p *pipes) Write(b []byte) (int, error) { return p.output.Write(b) }
func (p *pipes) Close() error                { return errors.Join(p.input.Close(), p.output.Close()) }

// The line has no addresses, and limits have their own timers.
func (*pipes) LocalAddr() net.Addr              { return address{} }
func (*pipes) RemoteAddr() net.Addr             { return address{} }
func (*pipes) SetDeadline(time.Time) error      { return nil }
func (*pipes) SetReadDeadline(time.Time) error  { return nil }
func (*pipes) SetWriteDeadline(time.Time) error { return nil }

type address struct{}

func (address) Network() string { return "agent" }
func (address) String() string  { return "agent" }
