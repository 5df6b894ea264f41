package resume

import (
	"log/slog"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"coppice/agent/internal/account"
	"coppice/agent/internal/freezer"
	"coppice/agent/internal/guest"
	"coppice/agent/internal/network"
	"coppice/agent/internal/reap"
	"coppice/agent/internal/rootfs"
)

// Options are what the steps of a real guest work on. Random is an open /dev/urandom.
type Options struct {
	Random   *os.File
	Root     *rootfs.Root
	Identity *Identity
	Guest    *guest.State
	Freezer  *freezer.Freezer
}

// Steps are those of a real guest.
func Steps(o Options) []Step {
	places := &directories{root: "/"}
	return []Step{
		{"freezer", func(Request) error {
			o.Freezer.Hold()
			return nil
		}},
		{"entropy", func(r Request) error { return addEntropy(o.Random, r.Entropy) }},
		{"clock", func(r Request) error { return r.Time.Set() }},
		{"root", func(Request) error { return o.Root.Switch() }},
		{"disk", func(r Request) error { return growDisk(o.Root, r) }},
		{"directories", places.ensure},
		{"hostname", func(r Request) error { return unix.Sethostname([]byte(r.Hostname)) }},
		{"identity", forgiving("identity", o.Identity.apply)},
		{"network", configureNetwork},
		{"resolver", forgiving("resolver", o.Identity.writeResolver)},
		{"connections", resetConnections},
		{"generation", forgiving("generation", o.Identity.writeGeneration)},
		{"environment", func(r Request) error {
			o.Guest.Set(r.Settings)
			return nil
		}},
		{"thaw", func(Request) error { return o.Freezer.Thaw() }},
	}
}

// forgiving lets a guest that has been in use go on without a file that it has no room for, or that is on something
// that its user has made read-only: its work must not be lost for that.
func forgiving(name string, do func(Request) error) func(Request) error {
	return func(r Request) error {
		err := do(r)
		if err != nil && reap.AnyProcess() {
			slog.Warn("resume goes on without a file", "step", name, "error", err)
			return nil
		}
		return err
	}
}

func growDisk(root *rootfs.Root, r Request) error {
	if r.DiskBytes == 0 {
		return nil
	}
	return root.Grow(r.DiskBytes)
}

// directories ensures them once for each user and place. A guest that has been in use has them, or has removed them
// itself, or has mounted a file system there whose server is one of the frozen programs.
type directories struct {
	root string
	done string
}

func (d *directories) ensure(r Request) error {
	wanted := r.Settings.User + "\x00" + r.Settings.Workdir
	if d.done == wanted {
		return nil
	}
	if err := rootfs.EnsureDirectories(d.root, r.Settings.Workdir, account.ImageOwner("/", r.Settings.User)); err != nil {
		return err
	}
	d.done = wanted
	return nil
}

func configureNetwork(r Request) error {
	if r.Network == nil {
		return network.TakeDown()
	}
	return r.Network.Apply()
}

// connectionsLimit is for a socket that a program holds, which could not be frozen because it waits for one that is.
const connectionsLimit = 2 * time.Second

// resetConnections asks nothing of a guest without programs, which every sandbox from a template is. A kernel that cannot do
// it leaves the connections to their own time limits.
func resetConnections(Request) error {
	if !reap.AnyProcess() {
		return nil
	}
	ended := make(chan error, 1)
	go func() { ended <- network.ResetConnections() }()
	select {
	case err := <-ended:
		if err != nil {
			slog.Warn("connections are left to their time limits", "error", err)
		}
	case <-time.After(connectionsLimit):
		slog.Warn("the reset of connections goes on behind the resume", "after", connectionsLimit)
	}
	return nil
}
