// Package tap finds out whether TAPs can be made here.
package tap

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

const device = "/dev/net/tun"

// Check makes a TAP of this name, which is gone again when it returns. The error says why none can be made.
func Check(name string) error {
	request, err := unix.NewIfreq(name)
	if err != nil {
		return fmt.Errorf("interface name %q: %w", name, err)
	}
	request.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
	file, err := os.OpenFile(device, os.O_RDWR, 0)
	var failed *os.PathError
	if errors.As(err, &failed) {
		return fmt.Errorf("%s: %w", device, failed.Err)
	}
	if err != nil {
		return err
	}
	defer file.Close()
	if err := unix.IoctlIfreq(int(file.Fd()), unix.TUNSETIFF, request); err != nil {
		return fmt.Errorf("%s: %w", device, err)
	}
	return nil
}
