package resume

import (
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"coppice/agent/internal/account"
	"coppice/agent/internal/guest"
	"coppice/agent/internal/network"
	"coppice/agent/internal/rootfs"
)

// Options are what the steps of a real guest work on. Random is an open /dev/urandom.
type Options struct {
	Random *os.File
	Root   *rootfs.Root
	Guest  *guest.State
}

// Steps are those of a real guest.
func Steps(o Options) []Step {
	names := &identity{root: "/"}
	return []Step{
		{"entropy", func(r Request) error { return addEntropy(o.Random, r.Entropy) }},
		{"clock", func(r Request) error { return unix.ClockSettime(unix.CLOCK_REALTIME, &r.Clock) }},
		{"root", func(Request) error { return o.Root.Switch() }},
		{"directories", ensureDirectories},
		{"hostname", func(r Request) error { return unix.Sethostname([]byte(r.Hostname)) }},
		{"identity", names.apply},
		{"network", configureNetwork},
		{"generation", writeGeneration},
		{"environment", func(r Request) error {
			o.Guest.Set(r.Settings)
			return nil
		}},
	}
}

func ensureDirectories(r Request) error {
	return rootfs.EnsureDirectories("/", r.Settings.Workdir, ownerOf(r.Settings.User))
}

// ownerOf is root where an image names a user that it does not have, or has a device for an /etc/passwd: both are for
// exec to report.
func ownerOf(user string) account.Identity {
	accounts, err := account.Load("/")
	if err != nil {
		return account.Identity{}
	}
	owner, err := accounts.Resolve(user)
	if err != nil {
		return account.Identity{}
	}
	return owner
}

func configureNetwork(r Request) error {
	if r.Network == nil {
		return network.TakeDown()
	}
	if err := r.Network.Apply(); err != nil {
		return err
	}
	return replaceFile("/", "etc/resolv.conf", resolverFile(r))
}

// writeGeneration tells programs with random generators of their own that they have been cloned.
func writeGeneration(r Request) error {
	if err := os.MkdirAll("/run/coppice", 0o755); err != nil {
		return fmt.Errorf("generation: %w", err)
	}
	return replaceFile("/", "run/coppice/generation", strconv.FormatUint(r.Generation, 10)+"\n")
}
