package network

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// primary is the only NIC that the runner attaches.
const primary = "eth0"

// Boot brings up lo, which gets its addresses by itself. It disables IPv6 on the NIC, which would otherwise solicit
// IPv6 routers that do not exist and so wake every idle guest.
func Boot() error {
	if err := withSocket(func(socket int) error { return setUp(socket, "lo", true) }); err != nil {
		return fmt.Errorf("lo: %w", err)
	}
	err := os.WriteFile("/proc/sys/net/ipv6/conf/"+primary+"/disable_ipv6", []byte("1"), 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Apply replaces the address and the default route. It does not take the interface down: that would drop the routes
// that a user has added, and it waits for every CPU.
func (p Plan) Apply() error {
	return withSocket(func(socket int) error {
		mask := net.CIDRMask(p.Address.Bits(), p.Address.Addr().BitLen())
		address := p.Address.Addr().As4()
		steps := []struct {
			name string
			do   func() error
		}{
			{"old default route", func() error { return deleteDefaultRoutes(socket) }},
			{"mtu", func() error { return setMTU(socket, p.Interface, p.MTU) }},
			{"address", func() error { return setAddress(socket, p.Interface, unix.SIOCSIFADDR, address[:]) }},
			{"netmask", func() error { return setAddress(socket, p.Interface, unix.SIOCSIFNETMASK, mask) }},
			{"up", func() error { return setUp(socket, p.Interface, true) }},
			{"default route", func() error { return changeDefaultRoute(socket, unix.SIOCADDRT, p.Gateway) }},
		}
		for _, step := range steps {
			if err := step.do(); err != nil {
				return fmt.Errorf("%s of %s: %w", step.name, p.Interface, err)
			}
		}
		return nil
	})
}

// TakeDown leaves the guest without a network. A machine without a NIC has none anyway.
func TakeDown() error {
	err := withSocket(func(socket int) error { return setUp(socket, primary, false) })
	if errors.Is(err, unix.ENODEV) {
		return nil
	}
	return err
}

func withSocket(use func(socket int) error) error {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("socket: %w", err)
	}
	return errors.Join(use(socket), unix.Close(socket))
}

func setUp(socket int, name string, up bool) error {
	request, err := unix.NewIfreq(name)
	if err != nil {
		return err
	}
	if err := unix.IoctlIfreq(socket, unix.SIOCGIFFLAGS, request); err != nil {
		return err
	}
	flags := request.Uint16() &^ unix.IFF_UP
	if up {
		flags |= unix.IFF_UP
	}
	if flags == request.Uint16() {
		return nil
	}
	request.SetUint16(flags)
	return unix.IoctlIfreq(socket, unix.SIOCSIFFLAGS, request)
}

func setMTU(socket int, name string, mtu int) error {
	request, err := unix.NewIfreq(name)
	if err != nil {
		return err
	}
	request.SetUint32(uint32(mtu))
	return unix.IoctlIfreq(socket, unix.SIOCSIFMTU, request)
}

func setAddress(socket int, name string, ioctl uint, address []byte) error {
	request, err := unix.NewIfreq(name)
	if err != nil {
		return err
	}
	if err := request.SetInet4Addr(address); err != nil {
		return err
	}
	return unix.IoctlIfreq(socket, ioctl, request)
}

// routeEntry is struct rtentry of <linux/route.h> on 64-bit machines.
type routeEntry struct {
	_           uint64
	destination unix.RawSockaddrInet4
	gateway     unix.RawSockaddrInet4
	mask        unix.RawSockaddrInet4
	flags       uint16
	_           [6]byte
	_           [40]byte
}

// maxDefaultRoutes bounds the default routes that a guest may have added.
const maxDefaultRoutes = 16

func deleteDefaultRoutes(socket int) error {
	for range maxDefaultRoutes {
		err := changeDefaultRoute(socket, unix.SIOCDELRT, netip.IPv4Unspecified())
		if errors.Is(err, unix.ESRCH) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return fmt.Errorf("there are more than %d", maxDefaultRoutes)
}

// changeDefaultRoute adds or deletes a default route. A deletion without a gateway deletes any default route.
func changeDefaultRoute(socket int, ioctl uintptr, gateway netip.Addr) error {
	any4 := unix.RawSockaddrInet4{Family: unix.AF_INET}
	route := routeEntry{destination: any4, gateway: any4, mask: any4, flags: unix.RTF_UP}
	if !gateway.IsUnspecified() {
		route.gateway.Addr = gateway.As4()
		route.flags |= unix.RTF_GATEWAY
	}
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(socket), ioctl, uintptr(unsafe.Pointer(&route)))
	if errno != 0 {
		return errno
	}
	return nil
}
