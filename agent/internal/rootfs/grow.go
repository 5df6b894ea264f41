package rootfs

import (
	"errors"

	"coppice/agent/internal/blockdevice"
)

// Grow extends the file system of the scratch disk to the size of the disk. The host has enlarged the disk to that many
// bytes.
func (r *Root) Grow(bytes uint64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.scratch == nil {
		return errors.New("there is no scratch disk to grow")
	}
	if err := blockdevice.AwaitSize(r.scratchDisk, bytes); err != nil {
		return err
	}
	return blockdevice.GrowFileSystem(r.scratch, bytes)
}
