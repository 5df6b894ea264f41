package resume

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"coppice/agent/internal/guestfile"
	"coppice/agent/internal/network"
)

const maxHostsBytes = 1 << 20

// Identity writes the files that name the guest. It remembers its own line in /etc/hosts so that it leaves the user's
// lines alone.
type Identity struct {
	root  string
	hosts string
	// made holds the names of the files that have replaced those of the image.
	made map[string]bool
}

// NewIdentity returns an Identity that writes below root.
func NewIdentity(root string) *Identity { return &Identity{root: root, made: map[string]bool{}} }

const (
	hostsFile      = "etc/hosts"
	hostnameFile   = "etc/hostname"
	machineIDFile  = "etc/machine-id"
	resolverFile   = "etc/resolv.conf"
	generationFile = "run/coppice/generation"
)

// Prepare creates all of these files while the template is made, with placeholder names. Overwriting a file later costs
// a small part of replacing it. If Prepare cannot create a file, the resume creates it or reports the reason.
func (i *Identity) Prepare() {
	line := hostsLine(strings.Repeat("-", maxHostnameBytes), nil)
	for name, content := range map[string]string{
		hostsFile:      hostsHead + line,
		hostnameFile:   "-\n",
		machineIDFile:  strings.Repeat("0", machineIDDigits) + "\n",
		resolverFile:   "# There is no network.\n",
		generationFile: "0\n",
	} {
		if err := i.write(name, content); err != nil {
			slog.Warn("cannot prepare a file", "name", name, "error", err)
		}
	}
	if i.made[hostsFile] {
		i.hosts = line
	}
}

func (i *Identity) apply(r Request) error {
	return errors.Join(
		i.writeHosts(r),
		i.write(hostnameFile, r.Hostname+"\n"),
		i.write(machineIDFile, r.MachineID+"\n"),
	)
}

func (i *Identity) writeResolver(r Request) error {
	if r.Network == nil {
		return nil
	}
	return i.write(resolverFile, resolverText(r))
}

// writeGeneration lets programs with their own random generators notice that they have been cloned.
func (i *Identity) writeGeneration(r Request) error {
	return i.write(generationFile, strconv.FormatUint(r.Generation, 10)+"\n")
}

const hostsHead = "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n"

// hostsLine returns the line that maps the guest's name to its address. Without a network, the guest must still resolve
// its own name.
func hostsLine(hostname string, plan *network.Plan) string {
	address := "127.0.1.1"
	if plan != nil {
		address = plan.Address.Addr().String()
	}
	return address + "\t" + hostname + "\n"
}

// writeHosts replaces the whole file the first time, and only its own line later.
func (i *Identity) writeHosts(r Request) error {
	line := hostsLine(r.Hostname, r.Network)
	content := hostsHead + line
	if i.hosts != "" {
		current, err := guestfile.ReadBounded(filepath.Join(i.root, hostsFile), maxHostsBytes)
		if err == nil {
			content = strings.Replace(string(current), i.hosts, line, 1)
		}
	}
	if err := i.write(hostsFile, content); err != nil {
		return err
	}
	i.hosts = line
	return nil
}

func resolverText(r Request) string {
	var text strings.Builder
	fmt.Fprintf(&text, "nameserver %s\n", r.Network.Resolver)
	if len(r.DNSSearch) > 0 {
		fmt.Fprintf(&text, "search %s\n", strings.Join(r.DNSSearch, " "))
	}
	return text.String()
}

// write overwrites a file that it has made before. If that is not possible, it replaces the file with a new one.
func (i *Identity) write(name, content string) error {
	if i.made[name] && overwrite(filepath.Join(i.root, name), content) {
		return nil
	}
	if err := replaceFile(i.root, name, content); err != nil {
		return err
	}
	i.made[name] = true
	return nil
}

// overwrite writes content to a regular file that has no other link and no mount on it, and reports whether it did. No
// program can read a half-written file: programs are frozen or have not started.
func overwrite(path, content string) bool {
	// Opening a named pipe must not wait for a reader.
	file, err := unix.Open(path, unix.O_WRONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	return errors.Join(overwriteOpen(file, content), unix.Close(file)) == nil
}

var errShared = errors.New("not a regular file, or it has another link or a mount on it")

func overwriteOpen(file int, content string) error {
	var info unix.Statx_t
	if err := unix.Statx(file, "", unix.AT_EMPTY_PATH, unix.STATX_TYPE|unix.STATX_NLINK|unix.STATX_SIZE, &info); err != nil {
		return err
	}
	isMounted := info.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0
	if info.Mode&unix.S_IFMT != unix.S_IFREG || info.Nlink != 1 || isMounted {
		return errShared
	}
	written, err := unix.Pwrite(file, []byte(content), 0)
	if err != nil {
		return err
	}
	if written < len(content) {
		return unix.ENOSPC
	}
	if info.Size == uint64(written) {
		return nil
	}
	return unix.Ftruncate(file, int64(written))
}

// replaceFile replaces whatever has that name with a new file. It never writes through a symlink of the image:
// /etc/resolv.conf is commonly a symlink to a file of a service that does not run here.
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
