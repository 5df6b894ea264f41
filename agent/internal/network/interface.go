package network

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"unsafe"

	"golang.org/x/sys/unix"
)

// LoopbackUp brings up lo, which has its addresses by itself.
func LoopbackUp() error {
	return withSocket(func(socket int) error { return setUp(socket, "lo", true) })
}

// DisableIPv6 keeps an interface from soliciting routers that do not exist, which would wake every idle guest.
func DisableIPv6(name string) error {
	path := filepath.Join("/proc/sys/net/ipv6/conf", name, "disable_ipv6")
	err := os.WriteFile(path, []byte("1"), 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Apply replaces address and default route. Taking the interface down first drops every route through it, those of
// an earlier life of the guest as well.
func (p Plan) Apply() error {
	return withSocket(func(socket int) error {
		mask := net.CIDRMask(p.Address.Bits(), p.Address.Addr().BitLen())
		address := p.Address.Addr().As4()
		steps := []struct {
			name string
			do   func() error
		}{
			{"interface down", func() error { return setUp(socket, p.Interface, false) }},
			{"mtu", func() error { return setMTU(socket, p.Interface, p.MTU) }},
			{"address", func() error { return setAddress(socket, p.Interface, unix.SIOCSIFADDR, address[:]) }},
			{"netmask", func() error { return setAddress(socket, p.Interface, unix.SIOCSIFNETMASK, mask) }},
			{"interface up", func() error { return setUp(socket, p.Interface, true) }},
			{"default route", func() error { return addDefaultRoute(socket, p.Gateway) }},
		}
		for _, step := range steps {
			if err := step.do(); err != nil {
				return fmt.Errorf("%s of %s: %w", step.name, p.Interface, err)
			}
		}
		return nil
	})
}

// TakeDown leaves the guest without network. An interface that does not exist is down.
func TakeDown(name string) error {
	err := withSocket(func(socket int) error { return setUp(socket, name, false) })
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

func addDefaultRoute(socket int, gateway netip.Addr) error {
	any4 := unix.RawSockaddrInet4{Family: unix.AF_INET}
	route := routeEntry{destination: any4, gateway: any4, mask: any4, flags: unix.RTF_UP | unix.RTF_GATEWAY}
	route.gateway.Addr = gateway.As4()
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(socket), unix.SIOCADDRT, uintptr(unsafe.Pointer(&route)))
	if errno != 0 && errno != unix.EEXIST {
		return errno
	}
	return nil
}
