package serve

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"coppice/blocks/internal/blockmap"
	"coppice/blocks/internal/chain"
	"coppice/blocks/internal/nbd"
	"coppice/blocks/internal/objects"
)

// maxExports limits what runners that unload nothing may hold.
const maxExports = 4096

// Exports are the loaded versions by name. A name always shows the same version, also after a restart.
type Exports struct {
	Disks  *chain.Disks
	Source *blockmap.Source

	mutex  sync.Mutex
	loaded map[string]*blockmap.Version
}

// Load loads a version. It is exported as "<org>/<disk>/<version>", also after a restart, and under another name if the
// request has one.
func (e *Exports) Load(ctx context.Context, r Request) (any, error) {
	name := r.Export
	if name == "" {
		name = fmt.Sprintf("%s/%s/%d", r.Org, r.Disk, r.Version)
	}
	version, err := e.open(ctx, r.Org, r.Disk, r.Version)
	if err != nil {
		return nil, err
	}
	e.mutex.Lock()
	defer e.mutex.Unlock()
	if e.loaded == nil {
		e.loaded = map[string]*blockmap.Version{}
	}
	if _, exists := e.loaded[name]; !exists {
		if len(e.loaded) >= maxExports {
			return nil, fmt.Errorf("%d versions are loaded: unload some", len(e.loaded))
		}
		e.loaded[name] = version
	}
	return map[string]any{"export": name, "size_bytes": e.loaded[name].Size()}, nil
}

func (e *Exports) open(ctx context.Context, org, disk string, number int64) (*blockmap.Version, error) {
	version, err := e.Disks.Find(ctx, org, disk, number)
	if err != nil {
		return nil, err
	}
	root, err := version.RootHash()
	if err != nil {
		return nil, err
	}
	return blockmap.OpenVersion(ctx, e.Source, org, root, version.SizeBytes)
}

// Unload removes a name. Connections that use it continue.
func (e *Exports) Unload(name string) {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	delete(e.loaded, name)
}

// Names implements nbd.Exports.
func (e *Exports) Names() []string {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	return slices.Sorted(maps.Keys(e.loaded))
}

// Find implements nbd.Exports. A client that connects again after a restart finds a version that is not loaded yet.
func (e *Exports) Find(ctx context.Context, name string) (nbd.Export, error) {
	e.mutex.Lock()
	version, ok := e.loaded[name]
	e.mutex.Unlock()
	if ok {
		return version, nil
	}
	parts := strings.Split(name, "/")
	if len(parts) != 3 || !objects.IsName(parts[0]) || !objects.IsName(parts[1]) {
		return nil, fmt.Errorf("%w: there is no export %.100q", chain.ErrNoDisk, name)
	}
	number, err := strconv.ParseInt(parts[2], 10, 64)
	if err != nil {
		return nil, fmt.Errorf("%w: there is no export %.100q", chain.ErrNoDisk, name)
	}
	return e.open(ctx, parts[0], parts[1], number)
}

// Opener opens overlays.
type Opener interface {
	Open(name string) (*os.File, error)
}

// Beneath opens files below a directory that the runner passes as a descriptor. An escaped QEMU may put a link there.
type Beneath struct {
	Directory int
}

// Open opens a regular file.
func (b Beneath) Open(name string) (*os.File, error) {
	if b.Directory < 0 {
		return nil, fmt.Errorf("%w: the server has no directory of overlays", errInvalid)
	}
	how := unix.OpenHow{Flags: unix.O_RDONLY | unix.O_NONBLOCK | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS}
	descriptor, err := unix.Openat2(b.Directory, name, &how)
	if err != nil {
		return nil, fmt.Errorf("opening the overlay %.100q: %w", name, err)
	}
	return os.NewFile(uintptr(descriptor), name), nil
}
