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
	"coppice/agent/internal/workspace"
)

// Options are the parts of a real guest that the steps work on. Random is an open /dev/urandom.
type Options struct {
	Random    *os.File
	Root      *rootfs.Root
	Identity  *Identity
	Guest     *guest.State
	Freezer   *freezer.Freezer
	Workspace *workspace.Workspace
	// HostKey may be nil.
	HostKey interface{ KeepFor(machineID string) }
}

// Steps returns the steps of a real guest.
func Steps(o Options) []Step {
	places := &directories{root: "/"}
	return []Step{
		{"freezer", func(Request) error {
			o.Freezer.BeginResume()
			return nil
		}},
		{"entropy", func(r Request) error { return addEntropy(o.Random, r.Entropy) }},
		{"clock", func(r Request) error { return r.Time.Set() }},
		{"root", func(Request) error { return o.Root.Switch() }},
		{"disk", func(r Request) error { return growDisk(o.Root, r) }},
		{"directories", places.ensure},
		{"workspace", func(r Request) error { return mountWorkspace(o.Workspace, r) }},
		{"hostname", func(r Request) error { return unix.Sethostname([]byte(r.Hostname)) }},
		{"identity", forgiving("identity", o.Identity.apply)},
		{"network", configureNetwork},
		{"resolver", forgiving("resolver", o.Identity.writeResolver)},
		{"connections", resetConnections},
		{"generation", forgiving("generation", o.Identity.writeGeneration)},
		{"host key", func(r Request) error {
			if o.HostKey != nil {
				o.HostKey.KeepFor(r.MachineID)
			}
			return nil
		}},
		{"environment", func(r Request) error {
			o.Guest.Set(r.Settings)
			return nil
		}},
		{"thaw", func(Request) error { return o.Freezer.EndResume() }},
	}
}

// forgiving makes a step's failure to write a file harmless in a guest that has been in use. The disk may be full, or
// the user may have made the place read-only; the guest's work must not be lost for that.
func forgiving(name string, do func(Request) error) func(Request) error {
	return func(r Request) error {
		err := do(r)
		if err != nil && reap.AnyProcess() {
			slog.Warn("resume continues without a file", "step", name, "error", err)
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

func mountWorkspace(place *workspace.Workspace, r Request) error {
	if r.Workspace == nil {
		return nil
	}
	return place.Mount(*r.Workspace, r.Settings)
}

// directories creates the directories once for each user and place. A guest that has been in use already has them, or
// its user has removed them, or has mounted a file system there whose server is one of the frozen programs.
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

// connectionsLimit bounds the wait for a socket that is held by a program. Such a program could not be frozen because
// it waits for a program that is frozen.
const connectionsLimit = 2 * time.Second

// resetConnections does nothing in a guest without programs; every sandbox made from a template is one. If the kernel
// cannot reset connections, they end at their own timeouts.
func resetConnections(Request) error {
	if !reap.AnyProcess() {
		return nil
	}
	ended := make(chan error, 1)
	go func() { ended <- network.ResetConnections() }()
	select {
	case err := <-ended:
		if err != nil {
			slog.Warn("cannot reset connections; they end at their own timeouts", "error", err)
		}
	case <-time.After(connectionsLimit):
		slog.Warn("the reset of connections continues after the resume", "after", connectionsLimit)
	}
	return nil
}
