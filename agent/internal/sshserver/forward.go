package sshserver

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"strconv"
	"time"

	"golang.org/x/crypto/ssh"
)

const (
	dialLimit = 5 * time.Second
	maxPort   = 65535
)

// destination is the payload of direct-tcpip in RFC 4254, 7.2.
type destination struct {
	Host       string
	Port       uint32
	Originator string
	FromPort   uint32
}

// openForward connects a channel with a port of the guest's loopback. Other addresses are refused: the network policy of
// the sandbox is for its programs, and a sandbox is no way into networks.
func (s *server) openForward(offer ssh.NewChannel) {
	var to destination
	if err := ssh.Unmarshal(offer.ExtraData(), &to); err != nil || to.Port < 1 || to.Port > maxPort {
		s.refuse(offer, ssh.ConnectionFailed, "the destination is malformed")
		return
	}
	hosts := loopbackOf(to.Host)
	if hosts == nil {
		s.refuse(offer, ssh.Prohibited, "sandboxes forward only to their own loopback: use localhost as the destination")
		return
	}
	conn, err := dial(hosts, int(to.Port))
	if err != nil {
		s.refuse(offer, ssh.ConnectionFailed, err.Error())
		return
	}
	channel, requests, err := offer.Accept()
	if err != nil {
		slog.Debug("client left before its connection was open", "error", errors.Join(err, conn.Close()))
		return
	}
	go ssh.DiscardRequests(requests)
	join(channel, conn)
}

// loopbackOf returns the addresses that a host means, or nil if it is not loopback. It asks no resolver.
func loopbackOf(host string) []string {
	if host == "localhost" || host == "" {
		return []string{"127.0.0.1", "::1"}
	}
	address, err := netip.ParseAddr(host)
	if err != nil || address.Zone() != "" || !address.Unmap().IsLoopback() {
		return nil
	}
	return []string{address.Unmap().String()}
}

func dial(hosts []string, port int) (*net.TCPConn, error) {
	var failures []error
	// The kernel reports the death of a peer in the same guest, so probes would only wake it.
	dialer := net.Dialer{Timeout: dialLimit, KeepAlive: -1}
	for _, host := range hosts {
		conn, err := dialer.Dial("tcp", net.JoinHostPort(host, strconv.Itoa(port)))
		if err != nil {
			failures = append(failures, err)
			continue
		}
		if tcp, ok := conn.(*net.TCPConn); ok {
			return tcp, nil
		}
		failures = append(failures, errors.New("not a TCP connection"), conn.Close())
	}
	return nil, errors.Join(failures...)
}

// join copies both ways until both have ended. Each side may end its own direction alone.
func join(channel ssh.Channel, conn *net.TCPConn) {
	up := make(chan struct{})
	go func() {
		defer close(up)
		_, _ = io.Copy(conn, channel)
		_ = conn.CloseWrite()
	}()
	_, err := io.Copy(channel, conn)
	if err != nil {
		// The service must not take a part for the whole.
		_ = conn.SetLinger(0)
		_ = conn.Close()
	}
	_ = channel.CloseWrite()
	<-up
	_ = conn.Close()
	_ = channel.Close()
}
