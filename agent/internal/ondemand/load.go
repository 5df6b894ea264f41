package ondemand

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

const (
	indexFile      = "index"
	maxModuleBytes = 64 << 20
)

// Main is what the agent's program does when the kernel or a program of the guest runs it as modprobe. It returns the exit
// status.
func Main(arguments []string) int {
	if err := load("/proc/1/fd/"+strconv.Itoa(modulesDescriptor), arguments); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "modprobe:", err)
		return 1
	}
	return 0
}

func load(directory string, arguments []string) error {
	wanted, err := parseArguments(arguments)
	if err != nil {
		return err
	}
	index, err := os.ReadFile(filepath.Join(directory, indexFile))
	if err != nil {
		return err
	}
	for _, name := range wanted {
		order := find(string(index), name)
		if order == nil && !isLoaded(name) {
			return fmt.Errorf("there is no module %s for this kernel here", name)
		}
		for _, module := range order {
			if err := insert(directory, module); err != nil {
				return fmt.Errorf("module %s: %w", module, err)
			}
		}
	}
	return nil
}

// isLoaded reports whether the kernel has the module from its boot, or built in.
func isLoaded(name string) bool {
	_, err := os.Stat(filepath.Join("/sys/module", filepath.Base(normalize(name))))
	return err == nil
}

// insert does nothing if the module is loaded.
func insert(directory, module string) error {
	if isLoaded(module) {
		return nil
	}
	image, err := unpack(filepath.Join(directory, module+".ko.gz"))
	if err != nil {
		return err
	}
	if err := unix.InitModule(image, ""); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

func unpack(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	plain, err := gzip.NewReader(file)
	if err != nil {
		return nil, err
	}
	image, err := io.ReadAll(io.LimitReader(plain, maxModuleBytes+1))
	if err != nil {
		return nil, err
	}
	if len(image) > maxModuleBytes {
		return nil, fmt.Errorf("larger than %d bytes", maxModuleBytes)
	}
	return image, nil
}
