// Package ondemand gives the kernel modules for which it asks, such as those of bridges and of iptables. The image has
// none: it was not made for this kernel.
//
//	kernel, or iptables ── runs /run/coppice/modprobe, a link to the agent's own program
//	                            └─ Main: name or alias → index → module files of PID 1 → init_module
//
// The modules stay in the initramfs, compressed. No path leads there once the root is switched, so PID 1 keeps the
// directory open under a number that Main knows. Only these modules can be loaded this way. It is not a security boundary:
// root in the guest may load any module.
package ondemand

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

const (
	// modulesDescriptor is the number of PID 1's open directory with the modules. It is below the soft limit of open
	// files, and above all that are open when the agent boots.
	modulesDescriptor = 1000
	setting           = "/proc/sys/kernel/modprobe"
	ownProgram        = "/proc/1/exe"
)

// Helper is the program that the kernel runs. It exists once the root is switched. It has a path of its own so that it
// is missing in containers: there, /proc/1 is another program.
const Helper = "/run/coppice/modprobe"

// Keep opens the directory for the agent's lifetime. A machine whose initramfs has none loads nothing on demand.
func Keep(directory string) error {
	opened, err := unix.Open(directory, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open %s: %w", directory, err)
	}
	if err := unix.Dup3(opened, modulesDescriptor, unix.O_CLOEXEC); err != nil {
		return errors.Join(fmt.Errorf("keep %s open: %w", directory, err), unix.Close(opened))
	}
	if err := unix.Close(opened); err != nil {
		return err
	}
	return os.WriteFile(setting, []byte(Helper), 0)
}

// Link makes Helper. The directory below /run is the agent's.
func Link() error {
	if err := os.MkdirAll(filepath.Dir(Helper), 0o755); err != nil {
		return err
	}
	err := os.Symlink(ownProgram, Helper)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}
