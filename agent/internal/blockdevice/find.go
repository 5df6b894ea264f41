// Package blockdevice finds the guest's virtio disks and follows their size.
package blockdevice

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Find returns the path of the virtio disk with a serial number. sys is /sys, or a directory like it in tests.
func Find(sys, serial string) (string, error) {
	paths, err := filepath.Glob(filepath.Join(sys, "block/vd*/serial"))
	if err != nil {
		return "", err
	}
	for _, path := range paths {
		content, err := os.ReadFile(path)
		if err != nil {
			return "", err
		}
		if strings.TrimSpace(string(content)) == serial {
			return "/dev/" + filepath.Base(filepath.Dir(path)), nil
		}
	}
	return "", fmt.Errorf("there is no disk with the serial number %q", serial)
}
