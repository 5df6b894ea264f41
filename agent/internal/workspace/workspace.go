// Package workspace mounts the persistent disk of a sandbox at /workspace, and prepares it for what the host does with
// the disk: see POST /resume and POST /workspace/… of docs/reference/agent-protocol.md.
//
//	absent ──mount──▶ mounted ──freeze──▶ frozen
//	   ▲                │ ▲                  │
//	   └────unmount─────┘ └─thaw, deadline,──┘
//	                        end of the session
//
// The host formats the disk; the guest never does. A guest that is saved while the disk is mounted continues with the
// disk mounted: the host gives a copy the same content of the disk.
package workspace

import (
	"os"
	"path/filepath"
	"sync"

	"coppice/agent/internal/blockdevice"
	"coppice/agent/internal/fault"
	"coppice/agent/internal/guest"
)

const (
	serial = "workspace"
	point  = "workspace"
)

// Workspace is the place of the persistent disk. It begins without a disk.
type Workspace struct {
	root string
	find func() (disk string, err error)
	// resize grows a mounted ext4 to a number of bytes.
	resize func(top *os.File, bytes uint64) error

	// changing is held while the disk is mounted, grown or unmounted.
	changing sync.Mutex
	mu       sync.Mutex
	// top is the top directory of the mounted file system, or nil. It reaches the file system even if root in the guest
	// has mounted something else at /workspace.
	top *os.File
	// hold is the freeze in progress, or nil.
	hold *hold
	// syncing has a value while a sync is in progress.
	syncing chan struct{}
}

// New returns the Workspace of the guest with the given root.
func New(root string) *Workspace {
	find := func() (string, error) { return blockdevice.Find("/sys", serial) }
	return &Workspace{root: root, find: find, resize: blockdevice.GrowFileSystem, syncing: make(chan struct{}, 1)}
}

// Disk is what the host tells about the disk.
type Disk struct {
	SizeBytes uint64 `json:"size_bytes"`
}

// Limits of a disk's size. An ext4 with a journal is larger than the smallest disk.
const (
	sectorBytes  = 512
	minSizeBytes = 1 << 20
	maxSizeBytes = 1 << 50
)

// Validate checks the fields; prefix is the path of the object in the request's body, such as "workspace.".
func (d Disk) Validate(prefix string) error {
	if d.SizeBytes < minSizeBytes || d.SizeBytes > maxSizeBytes || d.SizeBytes%sectorBytes != 0 {
		return fault.Invalid("%ssize_bytes: must be a multiple of %d from %d to %d", prefix, sectorBytes, minSizeBytes, maxSizeBytes)
	}
	return nil
}

// Mount mounts the disk. If it is mounted already, Mount only makes the file system as large as the disk. After an error
// it is not mounted, unless it was before.
func (w *Workspace) Mount(disk Disk, settings guest.Settings) error {
	w.changing.Lock()
	defer w.changing.Unlock()
	device, err := w.await(disk)
	if err != nil {
		return err
	}
	if mounted, err := w.borrow(); err == nil {
		defer func() { _ = mounted.Close() }()
		return w.growToDevice(mounted, device)
	}
	top, err := w.mountDisk(device, settings)
	if err != nil {
		return err
	}
	w.mu.Lock()
	w.top = top
	w.mu.Unlock()
	return nil
}

// Grow makes the file system as large as the disk. The host has enlarged the disk to that size.
func (w *Workspace) Grow(disk Disk) error {
	w.changing.Lock()
	defer w.changing.Unlock()
	mounted, err := w.borrow()
	if err != nil {
		return err
	}
	defer func() { _ = mounted.Close() }()
	if w.isHeld() {
		return errFrozen()
	}
	device, err := w.await(disk)
	if err != nil {
		return err
	}
	return w.growToDevice(mounted, device)
}

func (w *Workspace) isHeld() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.hold != nil
}

// await returns the path of the disk once it has its size.
func (w *Workspace) await(disk Disk) (device string, err error) {
	if device, err = w.find(); err != nil {
		return "", err
	}
	return device, blockdevice.AwaitSize(device, disk.SizeBytes)
}

// borrow returns a descriptor of its own of the mounted file system's top directory: an operation on the file system
// may take longer than its caller waits. Until it is closed the disk cannot be unmounted.
func (w *Workspace) borrow() (*os.File, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.duplicateTop()
}

// duplicateTop does what borrow does. Call it with the lock held.
func (w *Workspace) duplicateTop() (*os.File, error) {
	if w.top == nil {
		return nil, fault.New(fault.InvalidState, "no disk is mounted at /workspace")
	}
	return duplicate(w.top)
}

func pointIn(root string) string { return filepath.Join(root, point) }
