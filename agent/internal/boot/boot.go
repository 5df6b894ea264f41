// Package boot brings the machine from the kernel's start to two open ports.
package boot

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"coppice/agent/internal/network"
	"coppice/agent/internal/ondemand"
	"coppice/agent/internal/rootfs"
)

// Machine holds the files that boot leaves open. The guest can replace nodes in /dev, but not these files.
type Machine struct {
	Ports  Ports
	Null   *os.File
	Random *os.File
}

const (
	modulesDirectory  = "/modules"
	onDemandDirectory = "/on-demand"
)

// Run boots the machine. PID 1 calls it once, in the initramfs.
func Run() (*Machine, error) {
	if os.Getpid() != 1 {
		return nil, errors.New("the agent is the init process of a Coppice guest and does nothing elsewhere")
	}
	unix.Umask(0o022)
	if err := rootfs.MountSystem(); err != nil {
		return nil, err
	}
	m := &Machine{}
	var err error
	if m.Null, err = os.OpenFile("/dev/null", os.O_RDWR, 0); err != nil {
		return nil, err
	}
	if err := openConsole(m.Null); err != nil {
		return nil, err
	}
	if m.Random, err = os.OpenFile("/dev/urandom", os.O_RDWR, 0); err != nil {
		return nil, err
	}
	if err := setLimits(); err != nil {
		return nil, err
	}
	if err := loadModules(modulesDirectory); err != nil {
		return nil, err
	}
	if err := ondemand.Keep(onDemandDirectory); err != nil {
		return nil, err
	}
	if err := network.Boot(); err != nil {
		return nil, err
	}
	m.Ports, err = openPorts()
	return m, err
}

// openConsole makes null the standard input, and the console (if the machine has one) the standard output and error.
func openConsole(null *os.File) error {
	out := int(null.Fd())
	if console, err := unix.Open("/dev/console", unix.O_WRONLY|unix.O_NOCTTY|unix.O_CLOEXEC, 0); err == nil {
		out = console
	}
	return errors.Join(unix.Dup3(int(null.Fd()), 0, 0), unix.Dup3(out, 1, 0), unix.Dup3(out, 2, 0))
}

// Processes inherit these limits, and the agent needs them too: three pipes for each of 1000 commands, two for each
// background process. A user may raise the soft limit up to the hard limit.
const (
	softFiles = 16384
	hardFiles = 524288
)

func setLimits() error {
	return syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: softFiles, Max: hardFiles})
}
