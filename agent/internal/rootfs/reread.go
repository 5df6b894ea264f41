package rootfs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// blockDriver is the kernel's driver of virtio disks. It reads the size of a disk when it binds to the disk.
const blockDriver = "bus/virtio/drivers/virtio_blk"

// rereadDisks makes the kernel read the size and content of its virtio disks again. The guest booted with empty disks,
// was saved, and continues with an image and a scratch disk in their place. No disk may be in use. sys is /sys, or a
// directory like it in tests.
func rereadDisks(sys string) error {
	driver := filepath.Join(sys, blockDriver)
	paths, err := filepath.Glob(filepath.Join(driver, "virtio*"))
	if err != nil {
		return err
	}
	if len(paths) == 0 {
		return errors.New("there is no virtio disk")
	}
	// The kernel assigns disk names in the order of binding.
	slices.SortFunc(paths, func(a, b string) int { return deviceNumber(a) - deviceNumber(b) })
	for _, action := range []string{"unbind", "bind"} {
		for _, path := range paths {
			device := filepath.Base(path)
			if err := os.WriteFile(filepath.Join(driver, action), []byte(device), 0o200); err != nil {
				return fmt.Errorf("%s %s: %w", action, device, err)
			}
		}
	}
	return nil
}

func deviceNumber(path string) int {
	number, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(path), "virtio"))
	if err != nil {
		return 0
	}
	return number
}
