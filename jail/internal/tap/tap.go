// Package tap opens the TAP of a VM. The interface exists already and is persistent; it has one holder at a time.
package tap

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

const device = "/dev/net/tun"

// flags: QEMU expects frames without a header of the driver, and offloads checksums and segmentation.
const flags = unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR

// Open attaches to the TAP of this name and puts it at the given descriptor, in place of what is there.
func Open(name string, descriptor int) error {
	if err := open(name, descriptor); err != nil {
		return fmt.Errorf("opening TAP %s: %w", name, err)
	}
	return nil
}

func open(name string, descriptor int) error {
	opened, err := unix.Open(device, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("%s: %w", device, err)
	}
	defer unix.Close(opened)
	if err := attach(opened, name); err != nil {
		return err
	}
	return unix.Dup3(opened, descriptor, unix.O_CLOEXEC)
}

// attach fails when there is no such TAP: the kernel then makes one that is not persistent, and is gone with its
// descriptor.
func attach(opened int, name string) error {
	request, err := unix.NewIfreq(name)
	if err != nil {
		return err
	}
	request.SetUint16(flags)
	err = unix.IoctlIfreq(opened, unix.TUNSETIFF, request)
	if errors.Is(err, unix.EBUSY) {
		return errors.New("another process holds it")
	}
	if err != nil {
		return err
	}
	if err := unix.IoctlIfreq(opened, unix.TUNGETIFF, request); err != nil {
		return err
	}
	if request.Uint16()&unix.IFF_PERSIST == 0 {
		return errors.New("it is gone")
	}
	return nil
}
