package serve

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"coppice/blocks/internal/blockmap"
	"coppice/blocks/internal/chain"
	"coppice/blocks/internal/nbd"
	"coppice/blocks/internal/objects"
)

const (
	// maxExports limits what runners that unload nothing may hold.
	maxExports = 4096
	// macBytes is the length of the code at the end of an export's name.
	macBytes = 16
)

// Exports are the loaded versions. Every VMM may connect, also one that its guest took over, so the name of an export is
// a capability: "<org>/<disk>/<version>/<code>", where only the runner's key makes the code. A name always shows the same
// version, also after a restart.
type Exports struct {
	Disks  *chain.Disks
	Source *blockmap.Source
	// Key makes the codes.
	Key []byte

	mutex  sync.Mutex
	loaded map[versionID]*blockmap.Version
}

type versionID struct {
	org, disk string
	number    int64
}

// Load loads a version, so that a client that connects need not wait for the store, and returns the name of its export.
func (e *Exports) Load(ctx context.Context, r Request) (any, error) {
	id := versionID{r.Org, r.Disk, r.Version}
	manifest, version, err := e.find(ctx, id)
	if err != nil {
		return nil, err
	}
	e.mutex.Lock()
	defer e.mutex.Unlock()
	if e.loaded == nil {
		e.loaded = map[versionID]*blockmap.Version{}
	}
	if _, exists := e.loaded[id]; !exists {
		if len(e.loaded) >= maxExports {
			return nil, fmt.Errorf("%d versions are loaded: unload some", len(e.loaded))
		}
		e.loaded[id] = version
	}
	return map[string]any{"export": e.name(id), "size_bytes": version.Size(), "root": manifest.Root}, nil
}

func (e *Exports) find(ctx context.Context, id versionID) (chain.Version, *blockmap.Version, error) {
	manifest, err := e.Disks.Find(ctx, id.org, id.disk, id.number)
	if err != nil {
		return manifest, nil, err
	}
	root, err := manifest.RootHash()
	if err != nil {
		return manifest, nil, err
	}
	version, err := blockmap.OpenVersion(ctx, e.Source, id.org, root, manifest.SizeBytes)
	return manifest, version, err
}

// Unload forgets a version. Connections that use it continue.
func (e *Exports) Unload(r Request) {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	delete(e.loaded, versionID{r.Org, r.Disk, r.Version})
}

// Count is the number of loaded versions.
func (e *Exports) Count() int {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	return len(e.loaded)
}

// Find implements nbd.Exports. A client that connects again after a restart finds a version that is not loaded yet.
func (e *Exports) Find(ctx context.Context, name string) (nbd.Export, error) {
	id, ok := e.parse(name)
	if !ok {
		return nil, fmt.Errorf("%w: there is no such export", chain.ErrNoDisk)
	}
	e.mutex.Lock()
	version, isLoaded := e.loaded[id]
	e.mutex.Unlock()
	if isLoaded {
		return version, nil
	}
	_, found, err := e.find(ctx, id)
	if err != nil {
		return nil, err
	}
	return found, nil
}

func (e *Exports) name(id versionID) string {
	plain := fmt.Sprintf("%s/%s/%d", id.org, id.disk, id.number)
	code := hmac.New(sha256.New, e.Key)
	code.Write([]byte(plain))
	return plain + "/" + hex.EncodeToString(code.Sum(nil)[:macBytes])
}

// parse accepts only what name returns.
func (e *Exports) parse(name string) (id versionID, ok bool) {
	parts := strings.Split(name, "/")
	if len(parts) != 4 || !objects.IsName(parts[0]) || !objects.IsName(parts[1]) {
		return id, false
	}
	number, err := strconv.ParseInt(parts[2], 10, 64)
	id = versionID{parts[0], parts[1], number}
	return id, err == nil && hmac.Equal([]byte(e.name(id)), []byte(name))
}
