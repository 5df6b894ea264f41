package boot

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// loadModules loads the modules that directory/order lists, one file name a line, and removes the directory: the
// initramfs is memory, and every sandbox would keep it.
func loadModules(directory string) error {
	order, err := os.ReadFile(filepath.Join(directory, "order"))
	if err != nil {
		return err
	}
	for _, name := range parseOrder(string(order)) {
		if err := loadModule(filepath.Join(directory, name)); err != nil {
			return fmt.Errorf("module %s: %w", name, err)
		}
	}
	return os.RemoveAll(directory)
}

func parseOrder(text string) []string {
	var names []string
	for _, line := range strings.Split(text, "\n") {
		if name := strings.TrimSpace(line); name != "" {
			names = append(names, name)
		}
	}
	return names
}

func loadModule(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	err = unix.FinitModule(int(file.Fd()), "", 0)
	if errors.Is(err, unix.EEXIST) {
		err = nil
	}
	return errors.Join(err, file.Close())
}
