package resume

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"coppice/agent/internal/guestfile"
	"coppice/agent/internal/network"
)

const maxHostsBytes = 1 << 20

// identity writes the files that name the guest. It remembers its own line in /etc/hosts, to leave the user's alone.
type identity struct {
	root  string
	hosts string
}

func (i *identity) apply(r Request) error {
	return errors.Join(
		i.writeHosts(r),
		replaceFile(i.root, "etc/hostname", r.Hostname+"\n"),
		replaceFile(i.root, "etc/machine-id", r.MachineID+"\n"),
	)
}

const hostsHead = "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n"

// hostsLine names the guest. Without a network it must still find itself.
func hostsLine(hostname string, plan *network.Plan) string {
	address := "127.0.1.1"
	if plan != nil {
		address = plan.Address.Addr().String()
	}
	return address + "\t" + hostname + "\n"
}

// writeHosts replaces the file the first time and only its own line later.
func (i *identity) writeHosts(r Request) error {
	line := hostsLine(r.Hostname, r.Network)
	content := hostsHead + line
	if i.hosts != "" {
		current, err := guestfile.ReadBounded(filepath.Join(i.root, "etc/hosts"), maxHostsBytes)
		if err == nil {
			content = strings.Replace(string(current), i.hosts, line, 1)
		}
	}
	if err := replaceFile(i.root, "etc/hosts", content); err != nil {
		return err
	}
	i.hosts = line
	return nil
}

func resolverFile(r Request) string {
	var text strings.Builder
	fmt.Fprintf(&text, "nameserver %s\n", r.Network.Resolver)
	if len(r.DNSSearch) > 0 {
		fmt.Fprintf(&text, "search %s\n", strings.Join(r.DNSSearch, " "))
	}
	return text.String()
}

// replaceFile puts a new file in the place of whatever has that name. It never writes through a symlink of the image,
// which for /etc/resolv.conf commonly leads to a service that does not run here.
func replaceFile(root, name, content string) error {
	path := filepath.Join(root, name)
	temporary := path + ".coppice"
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := os.RemoveAll(temporary); err != nil {
		return err
	}
	file, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o644)
	if err != nil {
		return err
	}
	_, err = file.WriteString(content)
	if err := errors.Join(err, file.Close()); err != nil {
		return errors.Join(err, os.Remove(temporary))
	}
	if info, err := os.Lstat(path); err == nil && info.IsDir() {
		if err := os.RemoveAll(path); err != nil {
			return err
		}
	}
	return os.Rename(temporary, path)
}
