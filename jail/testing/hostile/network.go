package main

import (
	"golang.org/x/sys/unix"
)

func networkAttempts(targets *Targets) []attempt {
	attempts := []attempt{
		opening("IPv4", unix.AF_INET, unix.SOCK_STREAM),
		opening("IPv6", unix.AF_INET6, unix.SOCK_DGRAM),
		opening("netlink", unix.AF_NETLINK, unix.SOCK_RAW),
		opening("packet", unix.AF_PACKET, unix.SOCK_RAW),
		opening("vsock", unix.AF_VSOCK, unix.SOCK_STREAM),
		opening("Unix datagram", unix.AF_UNIX, unix.SOCK_DGRAM),
		{"connect to an abstract name", func() error { return connect("@coppice") }},
	}
	for _, path := range targets.Sockets {
		attempts = append(attempts,
			attempt{"find socket " + path, func() error { return unix.Access(path, unix.F_OK) }},
			attempt{"connect to " + path, func() error { return connect(path) }})
	}
	tap := uintptr(targets.TAP)
	return append(attempts,
		calling("make an interface of the TAP", unix.SYS_IOCTL, tap, unix.TUNSETIFF, 0),
		calling("give the TAP away", unix.SYS_IOCTL, tap, unix.TUNSETOWNER, 0),
		calling("find the network of the TAP", unix.SYS_IOCTL, tap, unix.TUNGETDEVNETNS, 0),
		calling("request signals for the TAP", unix.SYS_FCNTL, tap, unix.F_SETOWN, 1),
	)
}

func opening(name string, family, kind int) attempt {
	return attempt{"open a socket: " + name, func() error {
		descriptor, err := unix.Socket(family, kind, 0)
		if err == nil {
			return unix.Close(descriptor)
		}
		return err
	}}
}

func connect(path string) error {
	descriptor, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		return err
	}
	defer unix.Close(descriptor)
	return unix.Connect(descriptor, &unix.SockaddrUnix{Name: path})
}
